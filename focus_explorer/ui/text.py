"""Every sentence the Gradio page says, in one place; the browser part keeps its own in assets/js."""

TITLE = "Focus Explorer"
TAGLINE = (
    "See which tokens a language model with Focus sparse attention puts into one group, what it may attend to, "
    "and what that costs and saves."
)
CENTROIDS_INTRO = (
    "Centroids decide which group a token belongs to. Upload a trained file (.safetensors, or .pt "
    "with plain tensors); it is checked before anything is kept, and can then be chosen on the Explore page. "
    "Code inside a file is never run."
)
RUNS_INTRO = (
    "Every text you explore is kept in one database file. Open a run again, share its link, or export its tables."
)
HELP = {
    "text": "Text to explore",
    "sample": "Or try a sample",
    "model": "Embedded name, Hugging Face id, folder or .gguf file",
    "centroids": "Who decides the groups; random is the untrained baseline",
    "top_k": "Groups per token: more keeps more pairs",
    "window": "Tokens this near always attend",
    "sinks": "First tokens that all may see",
    "assignment": "Causal never looks at later tokens; Sinkhorn balances over the whole text",
    "limit": "Longer texts are cut here; 0 means no cut",
}
