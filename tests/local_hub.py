"""A small HTTP server that speaks what huggingface_hub asks of a model hub, for tests without a network.

It keeps repositories in memory: revisions with their files, LFS objects beside them, private and gated repositories, an
access token, and requests that fail as a test wants. Uploads through Xet, a binary protocol of its own, are not spoken;
the fixture `local_hub` turns them off, and the client then takes the LFS protocol.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_local"


@dataclass
class Repository:
    """Commits by hash with their files, branches and tags by name."""

    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, files: dict[str, bytes], *, branch: str = "main", message: str = "add") -> str:
        parent = self.refs.get(branch, "")
        content = {**self.commits.get(parent, {}), **files}
        told = repr((parent, message, sorted((name, hashlib.sha1(data).hexdigest()) for name, data in content.items())))
        sha = hashlib.sha1(told.encode()).hexdigest()
        self.commits[sha], self.refs[branch] = content, sha
        self.messages.append(message)
        return sha

    def resolve(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.refs.get(revision)


class LocalHub:
    """The server, as a context manager.

    Attributes:
        repositories: by name.
        objects: LFS objects by sha256.
        requests: method and path of every request.
        broken: part of a path -> status that requests with it are answered with.
        cut: part of a path -> number of bytes after which the answer's body ends.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.broken: dict[str, int] = {}
        self.cut: dict[str, int] = {}

    def add(self, name: str, files: dict[str, bytes], **changes: bool) -> str:
        """Put files into the main branch of a repository; gives the commit."""
        repository = self.repositories.setdefault(name, Repository())
        for key, value in changes.items():
            setattr(repository, key, value)
        return repository.commit(files)

    def __enter__(self) -> LocalHub:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.elsewhere = f"http://localhost:{self._server.server_port}"  # large files lie on another host
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments) -> None:
        """Nothing is printed."""

    def _route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.hub.requests.append(f"{self.command} {path}")
        for part, status in self.hub.broken.items():
            if part in path:
                return self._answer(status, {"error": "made to fail"})
        method = "GET" if self.command == "HEAD" else self.command
        for pattern, asked, handler in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match is not None and asked == method:
                return handler(self, *match.groups())
        return self._answer(404, {"error": f"no such address: {self.command} {path}"})

    do_GET = do_HEAD = do_POST = do_PUT = _route  # noqa: N815 - names of the base class

    def _answer(self, status: int, content: object, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "HEAD":
            return
        end = next((most for part, most in self.hub.cut.items() if part in self.path), len(data))
        self.wfile.write(data[:end])
        if end < len(data):
            self.close_connection = True

    def _refuse(self, status: int, code: str, **headers: str) -> None:
        self._answer(status, {"error": code}, X_Error_Code=code, X_Error_Message=code, **headers)

    @property
    def _known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repository(self, name: str) -> Repository | None:
        """The repository where the sender may read it; else the refusal is sent."""
        if "Authorization" in self.headers and not self._known:
            self._answer(401, {"error": "bad"}, X_Error_Message="Invalid credentials in Authorization header")
            return None
        found = self.hub.repositories.get(name)
        if found is None or (found.private and not self._known):
            self._refuse(404 if self._known else 401, "RepoNotFound")
        elif found.gated:
            self._refuse(403 if self._known else 401, "GatedRepo")
        else:
            return found
        return None

    def _writable(self) -> bool:
        if not self._known:
            self._answer(401, {"error": "Invalid username or password."})
        return self._known

    def _resolve(self, name: str, revision: str, file: str) -> None:
        repository = self._repository(name)
        if repository is None:
            return None
        commit = repository.resolve(revision)
        if commit is None:
            return self._refuse(404, "RevisionNotFound")
        data = repository.commits[commit].get(file)
        if data is None:
            return self._refuse(404, "EntryNotFound", X_Repo_Commit=commit)
        if not file.endswith(".safetensors"):
            return self._answer(200, data, X_Repo_Commit=commit, ETag=f'"{_git_hash(data)}"')
        digest = hashlib.sha256(data).hexdigest()
        self.hub.objects[digest] = data
        linked = {"X_Linked_Etag": f'"{digest}"', "X_Linked_Size": str(len(data))}
        return self._answer(302, b"", Location=f"{self.hub.elsewhere}/cdn/{digest}", X_Repo_Commit=commit, **linked)

    def _object(self, digest: str) -> None:
        self._answer(200, self.hub.objects[digest], ETag=f'"{digest}"')

    def _info(self, name: str, revision: str | None) -> None:
        repository = self._repository(name)
        if repository is not None:
            commit = repository.resolve(revision or "main")
            siblings = [{"rfilename": file} for file in repository.commits.get(commit or "", {})]
            self._answer(200, {"id": name, "sha": commit, "private": repository.private, "siblings": siblings})

    def _create(self) -> None:
        if not self._writable():
            return None
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name in self.hub.repositories:
            return self._answer(409, {"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"})
        repository = Repository(private=asked.get("visibility") == "private" or bool(asked.get("private")))
        repository.commit({".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})
        self.hub.repositories[name] = repository
        return self._answer(200, {"url": f"{self.hub.url}/{name}", "name": name})

    def _branch(self, name: str, branch: str) -> None:
        repository = self._repository(name)
        if repository is not None and self._writable():
            if branch in repository.refs:
                return self._answer(409, {"error": "Reference already exists"})
            repository.refs[branch] = repository.refs["main"]
            return self._answer(200, {})
        return None

    def _validate(self) -> None:
        text = json.loads(self.body)["content"]
        front = re.match(r"---\n(.*?)\n---\n", text, re.S)
        values = yaml.safe_load(front[1]) if front else {}
        errors = [] if isinstance(values, dict) else [{"message": "metadata is no mapping"}]
        self._answer(400 if errors else 200, {"errors": errors, "warnings": []})

    def _preupload(self, name: str, revision: str) -> None:
        repository = self._repository(name)
        if repository is None or not self._writable():
            return None
        commit = repository.resolve(revision)
        if commit is None:
            return self._refuse(404, "RevisionNotFound")
        files = []
        for file in json.loads(self.body)["files"]:
            mode = "lfs" if file["path"].endswith(".safetensors") else "regular"
            now = repository.commits[commit].get(file["path"])
            oid = None if now is None else hashlib.sha256(now).hexdigest() if mode == "lfs" else _git_hash(now)
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return self._answer(200, {"files": files})

    def _batch(self, name: str) -> None:
        if self._repository(name) is None or not self._writable():
            return
        objects = []
        for entry in json.loads(self.body)["objects"]:
            upload = {"upload": {"href": f"{self.hub.url}/lfs/{entry['oid']}"}}
            objects.append({**entry, **({} if entry["oid"] in self.hub.objects else {"actions": upload})})
        self._answer(200, {"transfer": "basic", "objects": objects})

    def _store(self, digest: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != digest:
            return self._answer(400, {"error": "another content"})
        self.hub.objects[digest] = self.body
        return self._answer(200, {})

    def _commit(self, name: str, revision: str) -> None:
        repository = self._repository(name)
        if repository is None or not self._writable():
            return
        message, files = "", {}
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            else:
                files[value["path"]] = base64.b64decode(value["content"])
        commit = repository.commit(files, branch=revision, message=message)
        self._answer(200, {"success": True, "commitOid": commit, "commitUrl": f"{self.hub.url}/{name}/commit/{commit}"})


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


_NAME = r"([^/]+/[^/]+)"
_ROUTES = (
    (rf"/{_NAME}/resolve/(.+)/([^/]+)", "GET", _Handler._resolve),
    (r"/cdn/(\w+)", "GET", _Handler._object),
    (rf"/api/models/{_NAME}(?:/revision/(.+))?", "GET", _Handler._info),
    (r"/api/repos/create", "POST", _Handler._create),
    (rf"/api/models/{_NAME}/branch/(.+)", "POST", _Handler._branch),
    (r"/api/validate-yaml", "POST", _Handler._validate),
    (rf"/api/models/{_NAME}/preupload/(.+)", "POST", _Handler._preupload),
    (rf"/{_NAME}\.git/info/lfs/objects/batch", "POST", _Handler._batch),
    (r"/lfs/(\w+)", "PUT", _Handler._store),
    (rf"/api/models/{_NAME}/commit/(.+)", "POST", _Handler._commit),
)
