#!/bin/sh
# Starts `focus-explorer` in the image: the model that was converted when the image was built is put where it is looked for.
set -eu
models="$HOME/.cache/focus-explorer/models"
if ! mkdir -p "$models" 2>/dev/null || ! [ -w "$models" ]; then
  echo "error: $HOME cannot be written by user $(id -u); give it that owner, or mount a volume in place of a folder" >&2
  exit 2
fi
for model in /opt/focus/models/*; do
  name="$models/${model##*/}"
  [ -e "$name" ] || ln -sfn "$model" "$name"
done
exec focus-explorer "$@"
