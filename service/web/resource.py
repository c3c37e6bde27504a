"""What all answers of the API share that are no documents."""

from pydantic import BaseModel, ConfigDict


class Resource(BaseModel):
    """Base of what the API answers beside documents."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True, serialize_by_alias=True)
