"""The form field that chooses a device."""

from __future__ import annotations

import gradio as gr

from focus_explorer.usecases.models import device_choices


def device_field(value: str, *, label: str, info: str, elem_id: str, visible: bool = True) -> gr.Dropdown:
    """A dropdown; `list_devices` fills it."""
    listed = list(dict.fromkeys(["auto", "cpu", value]))
    return gr.Dropdown(listed, value=value, label=label, info=info, min_width=120, elem_id=elem_id, visible=visible)


def list_devices(opened: gr.Accordion, field: gr.Dropdown, *, training: bool = False) -> None:
    """Offer this machine's devices once the accordion is opened: at the page's start, importing torch takes seconds.

    Args:
        opened: holds the field.
        field: of `device_field`.
        training: offer what trainings take.
    """
    opened.expand(
        lambda: gr.update(choices=device_choices(training=training)),
        None,
        field,
        show_progress="hidden",
        api_visibility="private",
    )
