"""What all answers of the API share that are no documents."""

from pydantic import ConfigDict

from sutler.service.documents.described import Described


class Resource(Described):
    """Base of what the API answers beside documents."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)
