"""Start the page with its defaults: `python app.py` is `focus-explorer serve`."""

from focus_explorer.ui.shell import build_app

if __name__ == "__main__":
    build_app().launch()
