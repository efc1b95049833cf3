"""The Gradio page: a shell that routes, and one file per tab."""
