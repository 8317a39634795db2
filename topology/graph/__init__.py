"""A picture of the topology: a small model of it, and writers of SVG, Mermaid and DOT."""
