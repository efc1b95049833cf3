"""Tiny random models, routers and a byte-level tokenizer, built in memory. Nothing here touches the network.

benchmarks/gpu.py imports it where torch, transformers and safetensors are all there is.
"""

from __future__ import annotations

import functools
import socket
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from focus_runtime.config import FocusConfig
from focus_runtime.measure.attention_mass import MASS_CAUSES, mass_under_groups
from focus_runtime.routing.centroids import random_centroids

ROOT = Path(__file__).parents[1]
VOCAB = 128
TINY: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXTRA: dict[str, dict[str, Any]] = {
    "Gemma2": {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0},
    "Gemma3Text": {"query_pre_attn_scalar": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "Granite": {"logits_scaling": 4.0},
    "GPTJ": {"rotary_dim": 8},
    "GptOss": {"num_local_experts": 2, "num_experts_per_tok": 1},
}


def build_model(family="Llama", *, seed=0, implementation="eager", **changes):
    """A tiny random causal language model of one family, in evaluation mode; larger weights than usual, so that
    attention is far from uniform and a wrong mask shows."""
    values = {**TINY, **EXTRA.get(family, {}), **changes}
    if family == "Falcon":
        del values["head_dim"]  # derived, and refused when given
    config = getattr(transformers, family + "Config")(**values)
    config._attn_implementation = implementation
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4.0)
    return model


def needs_triton() -> None:
    """Skip a module without Triton, or without a GPU where its interpreter is too old for numpy 2.4."""
    import pytest  # not needed by benchmarks, which take models from here

    triton = pytest.importorskip("triton", reason="needs Triton")
    if not torch.cuda.is_available() and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7):
        pytest.skip("Triton's interpreter before 3.7 does not run with numpy 2.4", allow_module_level=True)
    if not torch.cuda.is_available():
        _quicken_interpreter()


@functools.cache
def _quicken_interpreter() -> None:
    """Leave out of Triton's interpreter what takes more than half of its time and changes no result; a version that
    names its parts otherwise is left as it is.

    It looks through the whole language at each call of a kernel's functions, although the kernel's own call has
    replaced everything until it returns; it tests each sum of whole numbers for an overflow, in 64 bits; and it makes a
    table of all types to look one up.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    parts = ("_patch_lang", "_get_np_dtype", "_LangPatchScope", "interpreter_builder")
    if not all(hasattr(interpreter, part) for part in parts):
        return
    patch = interpreter._patch_lang

    @functools.cache
    def read_by(fn):
        return [module for module in (tl, tl.core) if any(value is module for value in fn.__globals__.values())]

    def patch_once(fn):
        replaced = read_by(fn) and not any(tl.core.is_builtin(module.load) for module in read_by(fn))
        return interpreter._LangPatchScope() if replaced else patch(fn)

    numpy_type = interpreter._get_np_dtype
    of_number = functools.cache(numpy_type)

    def looked_up(of):
        number = of.scalar
        return numpy_type(number) if isinstance(number, tl.pointer_type) else of_number(number)

    interpreter._patch_lang, interpreter._get_np_dtype = patch_once, looked_up
    object.__setattr__(interpreter.interpreter_builder.options, "sanitize_overflow", False)


def build_centroids(model, *, seed=0, potentials=True, **settings):
    """Random routers; with `potentials` also random column potentials, so that causal assignment is allowed."""
    values = {"num_groups": 4, "top_k": 1, "window": 4, "num_sinks": 1, **settings}
    centroids = random_centroids(model, FocusConfig(**values), seed=seed)
    if potentials:
        generator = torch.Generator().manual_seed(seed + 1)
        for router in centroids.routers.values():
            router.potential.copy_(torch.randn(values["num_groups"], generator=generator))
            router.has_potential = True
    return centroids


def build_tokenizer():
    """One token per byte of the text; ids below `VOCAB` for printable ASCII, space and newline."""
    special = ["<pad>", "<s>", "</s>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=lambda c: (ord(c) >= 128 and c not in "ĠĊ", c))
    ordered = special + alphabet
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(ordered)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def build_bos_tokenizer(template="<bos> $A", **settings):
    """The same vocabulary with "<bos>" for "<s>", which is put before every text, as Gemma's and Llama's do.

    Args:
        template: of the tokens around a text.
        settings: further ones of the tokenizer, such as a chat template.
    """
    tokenizer = build_tokenizer().backend_tokenizer
    vocabulary = {"<bos>" if token == "<s>" else token: i for token, i in tokenizer.get_vocab().items()}
    tokenizer.model = models.BPE(vocab=vocabulary, merges=[])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(token, vocabulary[token]) for token in ("<bos>", "</s>")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="</s>", **settings
    )


def random_ids(length, *, batch=1, seed=0):
    """(batch, length) token ids without special tokens."""
    return torch.randint(3, VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def mass_kept(focus, ids):
    """(L,) share of full attention that the mask of a Focus run over (1, T) ids keeps, mean over heads."""
    focus.model(input_ids=ids, use_cache=False)
    return 1.0 - mass_under_groups(focus, ids, focus.head_masks())[0, ..., MASS_CAUSES.index("dropped")].mean(dim=1)


def free_port():
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
