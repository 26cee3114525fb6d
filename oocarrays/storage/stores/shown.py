"""Redaction of credentials from locations and errors shown to users or written to files.

https://me:secret@host/a.zarr?X-Amz-Signature=…   ──►   https://host/a.zarr?…
"""

from __future__ import annotations

import re

USER = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*)://([^/\s?#'\"]*)@")
QUERY = re.compile(r"(\bhttps?://[^\s?'\"]*)\?[^\s'\")>]+")
PARAMETER = re.compile(
    r"((?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|AWSAccessKeyId|Signature|sig|(?:access_|api_)?token)=)"
    r"[^\s&'\")>]+",
    re.IGNORECASE,
)
NAMED = re.compile(
    r"(\b(?:user(?:name)?|[a-z_]*password|[a-z_]*secret[a-z_]*|[a-z_]*token|access_key(?:_id)?)['\"]?\s*[:=]\s*"
    r"(?:Some\(\s*)?['\"])[^'\"]+",
    re.IGNORECASE,
)
"""Pattern of named values in the messages of libraries."""
CONTAINERS = ("az", "abfs", "abfss", "wasb", "wasbs")
"""Schemes with a container in the position of a user."""


def shown(text: object) -> str:
    """Return a location, or a text with locations, without users, passwords and signatures."""
    text = QUERY.sub(r"\1?…", USER.sub(_without_user, str(text)))
    return NAMED.sub(r"\1…", PARAMETER.sub(r"\1…", text))


def _without_user(found: re.Match[str]) -> str:
    scheme, user = found.groups()
    return found.group() if scheme in CONTAINERS and ":" not in user else f"{scheme}://"


def cleaned(error: BaseException) -> BaseException:
    """Redact credentials in the messages of an error and its causes, and return it."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each.args = tuple(shown(word) if isinstance(word, str) else word for word in each.args)
        each = each.__cause__ or each.__context__
    return error
