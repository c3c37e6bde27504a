"""Between documents and the solver: the only place that knows both vocabularies."""
