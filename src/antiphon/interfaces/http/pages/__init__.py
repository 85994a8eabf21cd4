"""Pages for a browser: made here, with style sheets and a script as files, and nothing inline."""
