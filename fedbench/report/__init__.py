"""The runs of a directory as one HTML file: sortable tables, switchable curves, heat maps, reasons, links."""
