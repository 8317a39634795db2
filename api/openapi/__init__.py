"""The OpenAPI document: FastAPI's of the requests, and here each answer with its schema and an example."""
