import gguf

from focus_runtime.models.loading import header_read_once, load_model
from tests.security.model_files import write_gguf


def test_a_conversion_reads_the_header_once(tmp_path, count_calls):
    path = write_gguf(tmp_path / "tiny.gguf")
    parses = count_calls(gguf.GGUFReader._build_fields, gguf.GGUFReader)
    load_model(str(path), cache_dir=tmp_path / "cache")
    assert len(parses) == 1


def test_the_library_is_itself_again_afterwards(tmp_path):
    before = gguf.GGUFReader, gguf.get_tensor_name_map
    with header_read_once():
        assert gguf.GGUFReader is not before[0]
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before
