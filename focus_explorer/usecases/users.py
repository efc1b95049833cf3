"""Users of a lab's page: a JSON file of names with hashed passwords (scrypt, RFC 7914)."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from typing import Any

from focus_explorer.errors import InputError
from focus_runtime.files import replacing

FORMAT = "focus-explorer users 1"
COST = {"n": 2**15, "r": 8, "p": 1}  # 32 MiB and about a tenth of a second for each attempt
MOST_MEMORY = 64 * 2**20
LEAST_LENGTH = 8
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")

Users = dict[str, dict[str, Any]]


def read_users(path: str) -> Users:
    """Users by name, each with salt, hash and the cost of it.

    Raises:
        InputError: the file cannot be read, or is none of this format.
    """
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as stream:
            content = json.load(stream)
    except OSError as error:
        raise InputError(
            f"the users in {path} cannot be read: {error.strerror}",
            fix=f"`focus-explorer users add NAME --file {path}` makes the file",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _malformed(path) from error
    users = content.get("users") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(users, dict) or not all(NAME.fullmatch(n) and _is_entry(u) for n, u in users.items()):
        raise _malformed(path)
    return users


def add_user(path: str, name: str, password: str) -> None:
    """Add a user, or give one another password; the file is readable for its owner alone.

    Args:
        path: of the file, which is made where it is missing.
        name: of the user.
        password: at least `LEAST_LENGTH` characters.

    Raises:
        InputError: name, password or file cannot be used.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"the name is {name!r}", expected="letters, digits and . _ @ -, at most 64")
    if len(password) < LEAST_LENGTH:
        raise InputError(f"the password has {len(password)} characters", expected=f"at least {LEAST_LENGTH}")
    users = read_users(path) if os.path.exists(os.path.expanduser(path)) else {}
    salt = secrets.token_bytes(16)
    users[name] = {"salt": salt.hex(), "hash": _hash(password, salt, COST).hex(), **COST}
    with replacing(os.path.expanduser(path), mode=0o600, sync=True) as part:
        part.write_text(json.dumps({"format": FORMAT, "users": users}, indent=2) + "\n", encoding="utf-8")


def is_password(users: Users, name: str, password: str) -> bool:
    """Whether a user has this password; an unknown name takes as long."""
    user = users.get(name)
    known = user or {"salt": "00" * 16, "hash": "00" * 64, **COST}
    made = _hash(password, bytes.fromhex(known["salt"]), known)
    return hmac.compare_digest(made, bytes.fromhex(known["hash"])) and user is not None


def _hash(password: str, salt: bytes, cost: dict[str, Any]) -> bytes:
    words = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(words, salt=salt, n=cost["n"], r=cost["r"], p=cost["p"], maxmem=MOST_MEMORY, dklen=64)


def _is_entry(user: Any) -> bool:
    if not isinstance(user, dict) or {name: user.get(name) for name in COST} != COST:
        return False
    lengths = {"salt": 32, "hash": 128}
    return all(
        isinstance(user.get(name), str) and re.fullmatch(f"[0-9a-f]{{{length}}}", user[name])
        for name, length in lengths.items()
    )


def _malformed(path: str) -> InputError:
    return InputError(f"{path} is no file of users", expected="one that `focus-explorer users add` wrote")
