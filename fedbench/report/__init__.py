"""The runs of a directory as one HTML file: tables to sort, curves to switch, heat maps, reasons, links."""
