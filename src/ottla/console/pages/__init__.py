"""One module for each page: asks the snapshot, calls the view, renders."""
