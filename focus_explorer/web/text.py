"""Every label and sentence of the page's Python side; the browser side keeps its own in assets/js/strings/.

An error carries its own message.
"""

TITLE = "Focus Explorer"
TABS = {"explore": "Explore", "training": "Training", "centroids": "Centroids", "runs": "Runs"}
SKIP = "Skip to the explored text"
TAGLINE = (
    "See how Focus sparse attention groups the tokens of your text, what each may attend to, "
    "and what that costs and saves."
)
PUBLIC_NOTICE = (
    "Anyone may explore texts of up to {tokens:,} tokens here. Your runs are shown to this browser alone and removed "
    "{hours:g} hours after your last visit; do not paste what is secret."
)
PUBLIC_CENTROIDS_INTRO = (
    "Centroids decide which group a token belongs to. Choose a file for the Explore page, look inside it, or see what "
    "changed between two. To upload your own, install Focus Explorer on your machine."
)
PUBLIC_RUNS_INTRO = (
    "The runs this page shows to everyone, and yours, which nobody else sees. Find a run, name and tag it, open it "
    "again, compare it with another, or export it."
)
CENTROIDS_INTRO = (
    "Centroids decide which group a token belongs to. Upload a trained file (.safetensors, or .pt "
    "with plain tensors); it is checked before anything is kept, and can then be chosen on the Explore page. "
    "Code inside a file is never run. Look inside a file, or see what changed between two."
)
RUNS_INTRO = (
    "Every text you explore is kept in one database file. Find a run, name and tag it, open it again, compare it with "
    "another, share its link, export it, or ask the database yourself."
)
TRAINING_INTRO = (
    "Train centroids on your own text: the model itself stays as it is, only the centroids learn which tokens belong "
    "together. A training continues when this page is closed, and can be stopped and continued without losing a step."
)
MODEL = "Embedded name or Hugging Face id; paths where serve --allow-path names their folder"
DEVICE = "What computes: the processor or a graphics card"
FORM = {  # field of the Explore form that is no setting of Focus -> its label and what it means
    "model": ("Model", MODEL),
    "centroids": ("Centroids", "Who decides the groups; random is the untrained baseline"),
    "max_tokens": ("Longest text", "Longer texts are cut here; 0 means no cut"),
    "special_tokens": ("Special tokens", "What the text begins with: auto for the model's own, such as <bos>, or none"),
    "chat": ("Turns of a chat (user:, assistant:)", None),
    "heads": (
        "Heads",
        "Settings of single heads, and windows that grow: the centroid file's, none, or the opened run's",
    ),
    "device": ("Device", DEVICE),
    "dtype": ("Number format", "Number format of the model; bfloat16 halves its memory and rounds more"),
    "backend": ("Backend", "What computes Focus attention: the same pairs, at another speed"),
    "seed": ("Seed", "Of the draw"),
}
PUBLIC_FORM = {  # what fields mean on a public page, where that is something else
    "model": "A model that this page offers",
    "max_tokens": "Longer texts are cut here; at most {tokens:,}",
}
LABELS = {
    "text": "A text to explore",
    "sample": "Or try a sample",
    "more": "More settings",
    "placeholder": "Paste a text…",
    "upload": "Centroid file",
}
HEADS = {"file": "Of the file", "alike": "All alike", "run": "Of the opened run"}
TRAIN_FORM = {  # field of the Training form -> its label and what it means
    "name": ("Name", "Name it is listed under"),
    "model": ("Model", MODEL),
    "groups": ("Groups", "K: groups in every layer; more groups, fewer pairs kept"),
    "top_k": ("Top-k", "Groups per token in use; 1 saves most"),
    "steps": ("Steps", "More steps learn longer; 300 is a fair start"),
    "seq_len": ("Sequence length", "Tokens read at once; longer costs memory and time"),
    "batch": ("Batch", "Sequences per step"),
    "window": ("Window", "Tokens this near always attend"),
    "sinks": ("Sinks", "First tokens that all may see"),
    "lr": ("Learning rate", "How far one step moves; lower it if the loss jumps"),
    "recipe": ("Recipe", "Ours lost least under the mask; paper is the published one, all pairs soft, no sinks"),
    "gate": ("Gate", "How groups act while training: log keeps close to the final mask, paper is the published one"),
    "dtype": (
        "Number format",
        "Of the frozen model; auto is bfloat16 where the processor computes it natively, otherwise float32",
    ),
    "device": ("Device", DEVICE),
    "seed": ("Seed", "Same seed and text, same result"),
    "loss": (
        "Loss",
        "What is minimised: lm, the loss of the text; distil, the change of full attention's predictions; both; or "
        "layers, the change of each layer's output",
    ),
    "hard_steps": ("Hard steps", "Last steps on the hard mask of later use; 0 for none"),
    "val": ("Held-out texts", "Held-out texts (optional): scored at the end, never trained on"),
    "val_every": ("Score every", "Steps between scores on the held-out texts; 0 scores at the end only"),
    "patience": (
        "Patience",
        "Scores in a row without a better one that end the training, with the best kept; 0 for never",
    ),
    "domains": (
        "A kind of text per file",
        "Every text file counts as one kind of text: trained on equally often, scored apart",
    ),
    "files": ("Texts", "Your text (.txt files); without any, the sample texts are used"),
}
TRAIN_LABELS = {name: label for name, (label, _) in TRAIN_FORM.items()}
TRAIN_HELP = {name: meaning for name, (_, meaning) in TRAIN_FORM.items()}
BUTTONS = {"explore": "Explore", "stop": "Stop", "whole": "Analyse all", "train": "Start training", "retry": "Retry"}
MESSAGES = {
    "waiting": "Waiting for the model",
    "full": "too many texts wait for the model already",
    "starting": "Starting",
    "explored": "Done. The run is stored.",
    "stopped": "Stopped; nothing of that run was kept.",
    "defect": (
        "something went wrong inside Focus Explorer; nothing of that run was kept, and the details are in "
        "the server's log"
    ),
    "fixed": "the files of this page are its host's; install Focus Explorer on your machine to keep files of your own",
    "other_run": "the run {run} of this link is not in this database; the newest run is shown instead",
    "cut": "{tokens}: will be cut to the first {limit:,}",
    "training": "Started. The curve appears as soon as the model is loaded.",
    "sample": "Exploring a sample text first, so that the page has something to show (once).",
}
