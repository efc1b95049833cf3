// @ts-check
// What a centroid file says about itself, in words.
import { format } from "../core/format.js";
import { centroids as text } from "../strings/centroids.js";
/** @import { CentroidCardPayload } from "../core/payloads.js" */

/** @param {CentroidCardPayload} file */
export function facts(file) {
  return [
    text.madeFor(file.base_model || text.unnamed),
    text.groups(file.num_groups),
    text.layers(file.layers),
    text.dim(file.routing_dim),
    file.added ? text.added(format.date(file.added), file.owner) : text.shipped,
    text.runs(file.runs),
  ];
}

/** @param {NonNullable<CentroidCardPayload["training"]>} training */
export function trainedOn(training) {
  if (training.random_seed !== undefined && !training.steps) return text.untrained(training.random_seed);
  /** @param {string} name @param {(count: string) => string} words */
  const count = (name, words) => (typeof training[name] === "number" ? words(format.count(training[name])) : null);
  const { domains, loss } = training;
  const named = Array.isArray(domains) && domains.length > 0 ? domains : training.texts;
  const texts = Array.isArray(named) ? named.join(", ") : named;
  const balanced = Array.isArray(training.balanced) ? training.balanced.join(", ") : null;
  const objective = loss === "distil" ? text.distilled : loss === "both" ? text.partlyDistilled : null;
  const parts = [
    texts,
    training.learn === "factors" ? text.factorsAlone : null,
    objective,
    count("training_tokens", text.tokens),
    count("steps", text.steps),
    training.hard_steps ? count("hard_steps", text.hardSteps) : null,
    count("tokens_seen", text.tokensSeen),
    count("seq_len", text.length),
    training.learning_rate !== undefined ? text.rate(training.learning_rate) : null,
    training.dtype,
    training.seed !== undefined ? text.seed(training.seed) : null,
    typeof training.seconds === "number" ? text.took(format.duration(training.seconds)) : null,
    balanced ? text.balanced(balanced) : null,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(" · ") : text.noTraining;
}

/** @param {Pick<CentroidCardPayload, "held_out" | "budget_held_out">} file */
export function heldOut({ held_out: record, budget_held_out: domains }) {
  const inside = domains ? [text.heldOutInside(format.count(domains), text.inspect)] : [];
  if (!record) return domains ? inside : [text.noHeldOut];
  const focus = Object.entries(record.focus).map(([name, result]) =>
    text.heldOutFocus(
      name,
      format.perplexity(result.perplexity),
      result.retained_pairs === undefined ? null : format.percent(result.retained_pairs),
    ),
  );
  return [
    text.heldOutFull(format.perplexity(record.full), record.scored ? format.count(record.scored) : null),
    ...focus,
    ...inside,
  ];
}
