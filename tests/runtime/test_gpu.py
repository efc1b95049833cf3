"""The launcher in C, with a library in place of the driver that notes what it is given."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess

import pytest
import torch

from focus_runtime import gpu
from focus_runtime.gpu import Launches, kinds_of, launcher, prepared
from tests.helpers import needs_triton

needs_triton()


pytestmark = pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("clang")), reason="Triton needs a compiler")
DRIVER = """
#include <stdint.h>
uint64_t asked[9]; unsigned char values[8][8]; void *context = &context; int status, wanted;
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned b, unsigned c,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  uint64_t given[9] = {(uint64_t)f, x, y, z, threads, b, c, shared, (uint64_t)stream};
  for (int i = 0; i < 9; i++) asked[i] = given[i];
  for (int i = 0; i < wanted; i++) *(uint64_t *)values[i] = *(uint64_t *)arguments[i];
  return status;
}
int cuCtxGetCurrent(void **found) { *found = context; return 0; }
int cuGetErrorString(int status, const char **words) { *words = "an illegal memory access"; return 0; }
"""


class Driver:
    """Stands for the CUDA driver."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.module = launcher(str(path))

    def set(self, name, value):
        ctypes.c_int.in_dll(self.library, name).value = value

    @property
    def asked(self):
        return list((ctypes.c_uint64 * 9).in_dll(self.library, "asked"))

    def value(self, place, form):
        return struct.unpack_from(form, (ctypes.c_ubyte * 64).in_dll(self.library, "values"), 8 * place)[0]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    compiler = shutil.which("gcc") or shutil.which("clang")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "driver.so", folder / "driver.c"], check=True)
    yield Driver(folder / "driver.so")
    launcher.cache_clear()


@pytest.fixture(autouse=True)
def at_rest(driver):
    driver.set("status", 0)
    ctypes.c_void_p.in_dll(driver.library, "context").value = 1


def test_arguments_arrive_as_the_kernel_declares_them(driver):
    tensor = torch.zeros(3)
    kernel = driver.module.prepare(77, 128, 4096, "p-piqf-")
    driver.set("wanted", 7)
    arguments = (tensor, "compiled in", 1 << 63, -5, -(1 << 40), 0.1, None)
    assert driver.module.launch(kernel, 4, 5, 6, 99, arguments)
    assert driver.asked == [77, 4, 5, 6, 128, 1, 1, 4096, 99]
    assert driver.value(0, "=Q") == tensor.data_ptr()
    assert driver.value(1, "=Q") == 1 << 63
    assert driver.value(2, "=i") == -5
    assert driver.value(3, "=q") == -(1 << 40)
    assert driver.value(4, "=f") == struct.unpack("=f", struct.pack("=f", 0.1))[0]
    assert [driver.value(place, "=Q") for place in (5, 6)] == [0, 0]  # of Triton's working memory


def test_what_cannot_be_handed_over_is_refused(driver):
    driver.set("wanted", 1)
    kernel = driver.module.prepare(1, 32, 0, "i")
    with pytest.raises(OverflowError, match="32 bits"):
        driver.module.launch(kernel, 1, 1, 1, 0, (1 << 31,))
    with pytest.raises(TypeError):
        driver.module.launch(kernel, 1, 1, 1, 0, ("a word",))
    with pytest.raises(TypeError, match="takes 1 arguments, not 2"):
        driver.module.launch(kernel, 1, 1, 1, 0, (1, 2))
    with pytest.raises(AttributeError, match="data_ptr"):
        driver.module.launch(driver.module.prepare(1, 32, 0, "p"), 1, 1, 1, 0, ("no tensor",))
    with pytest.raises(ValueError, match="too many"):
        driver.module.prepare(1, 32, 0, "i" * 97)


def test_a_failure_reads_as_one_of_the_gpu(driver):
    from focus_runtime.failures import is_lost_gpu

    driver.set("wanted", 0)
    driver.set("status", 700)
    with pytest.raises(RuntimeError, match="illegal memory access") as caught:
        driver.module.launch(driver.module.prepare(1, 32, 0, ""), 1, 1, 1, 0, ())
    assert is_lost_gpu(caught.value)


def test_a_thread_without_a_context_and_an_empty_grid(driver):
    driver.set("wanted", 0)
    kernel = driver.module.prepare(5, 32, 0, "")
    driver.module.launch(kernel, 1, 1, 1, 0, ())
    assert driver.module.launch(kernel, 9, 0, 1, 0, ()), "nothing is to be done"
    assert driver.asked[1] == 1
    ctypes.c_void_p.in_dll(driver.library, "context").value = None
    assert not driver.module.launch(kernel, 9, 9, 9, 0, ())
    assert driver.asked[1] == 1


class Compiled:
    """A kernel as Triton keeps it, whose grid and arguments are noted."""

    function = 3

    def __init__(self, types, declared, **about):
        self.src = type("Source", (), {"signature": dict(enumerate(types))})
        entries = ",\n".join(f"\t.param .{kind} .ptr .global _param_{place}" for place, kind in enumerate(declared))
        self.asm = {"ptx": f".version 8.7\n.visible .entry a_kernel(\n{entries}\n)\n.reqntid 128\n{{ .reg .b32 %r1; }}"}
        usual = {"num_ctas": 1, "launch_cooperative_grid": False, "launch_pdl": False, "num_warps": 4, "shared": 7}
        self.metadata = type("Metadata", (), usual | {"global_scratch_size": 0, "profile_scratch_size": 0} | about)
        self.launched = []

    def __getitem__(self, grid):
        return lambda *arguments: self.launched.append((grid, arguments))


USUAL = (("*bf16", "i32", "constexpr", "fp32", "i64"), ("u64", "u32", "f32", "u64", "u64", "u64"))


def test_kernels_declare_what_their_types_say():
    assert kinds_of(Compiled(*USUAL)) == "pi-fq"
    assert kinds_of(Compiled(("*fp32", "i1"), ("u64", "u8", "u64", "u64"))) is None, "a type that is not known here"
    assert kinds_of(Compiled(USUAL[0], USUAL[1][:-1])) is None, "another Triton adds other arguments"
    assert kinds_of(Compiled(USUAL[0], ("u32", *USUAL[1][1:]))) is None


@pytest.mark.parametrize(
    "about", [{"num_ctas": 2}, {"launch_pdl": True}, {"launch_cooperative_grid": True}, {"global_scratch_size": 8}]
)
def test_kernels_that_ask_for_more_are_launched_by_triton(about, driver, monkeypatch):
    monkeypatch.setattr(gpu, "launcher", lambda: driver.module)
    assert prepared(Compiled(*USUAL)) is not None
    assert prepared(Compiled(*USUAL, **about)) is None


@pytest.fixture
def run(driver, monkeypatch):
    """Calls of one kernel, compiled at the first."""
    monkeypatch.setattr(gpu, "launcher", lambda: driver.module)
    stream = type("Active", (), {"get_current_stream": staticmethod(lambda _: 11)})
    monkeypatch.setattr("triton.runtime.driver", type("Driver", (), {"active": stream}))
    compiled, own = Compiled(*USUAL), Launches()

    class Kernel:
        def __getitem__(self, grid):
            return lambda *_, **options: asked.append(options) or compiled

    asked = compiled.asked = []

    def call(grid=(2, 3, 1)):
        own.run("name", Kernel(), grid, (torch.zeros(1), 5, None, 2.0, 6), 4, 2, 168)

    call()
    return call, compiled


def test_the_second_call_goes_by_the_launcher(run, driver):
    call, compiled = run
    assert compiled.asked == [{"num_warps": 4, "num_stages": 2, "enable_fp_fusion": True, "maxnreg": 168}]
    driver.set("wanted", 2)
    call((2, 3, 4))
    assert driver.asked == [3, 2, 3, 4, 128, 1, 1, 7, 11]
    assert driver.value(1, "=i") == 5
    assert compiled.launched == []


def test_triton_launches_where_somebody_listens_or_a_thread_has_no_context(run, driver, monkeypatch):
    call, compiled = run
    ctypes.c_void_p.in_dll(driver.library, "context").value = None
    call()
    assert [grid for grid, _ in compiled.launched] == [(2, 3, 1)]
    ctypes.c_void_p.in_dll(driver.library, "context").value = 1
    call()
    assert len(compiled.launched) == 1
    monkeypatch.setattr(gpu, "_observed", lambda: True)
    call()
    assert len(compiled.launched) == 2


def test_without_a_driver_one_warning_and_no_launcher(tmp_path):
    launcher.cache_clear()
    with pytest.warns(RuntimeWarning, match="launched by Triton"):
        assert launcher(str(tmp_path / "none.so")) is None
    launcher.cache_clear()
