"""Configurations of bakdata's Java library ``kafka-large-message-serde``, in its own keys.

Its keys and class names are those of ``AbstractLargeMessageConfig``, ``AmazonS3Config`` and ``LargeMessageSerdeConfig``
up to release 4.0.0. They are translated when a configuration is loaded, so that no other module needs to know them. A
configuration with one of these keys also gets the library's defaults: flags instead of headers, 1,000,000 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from payload_stores.options import Option, boolean
from serde_chain.errors import ConfigError

CLASS: Final = "com.bakdata.kafka.LargeMessage"
"""Java's class name, without "Serializer" or "Deserializer" at the end."""

_BASE_PATH: Final = "large.message.base.path"
_USE_HEADERS: Final = "large.message.use.headers"
_ACCEPT_NO_HEADERS: Final = "large.message.accept.no.headers"
_ID_GENERATOR: Final = "large.message.id.generator"

# Keys with the same meaning under another name.
_RENAMED: Final = {
    "large.message.max.byte.size": "large.message.threshold.bytes",
    "large.message.compression.type": "large.message.compression",
    "large.message.s3.endpoint": "s3.endpoint.url",
    "large.message.s3.region": "s3.region",
    "large.message.s3.access.key": "s3.access.key",
    "large.message.s3.secret.key": "s3.secret.key",
    "large.message.s3.path.style.access": "s3.path.style.access",
    "large.message.s3.request.checksum.calculation": "s3.checksum.calculation",
}
_ROLES: Final = "boto3 finds roles in its own places: AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, or a profile"
_GOOGLE: Final = (
    "The store objects has the same references: large.message.payload.store.class = objects and objects.url = "
    "gs://<bucket>/<prefix>/ stand in place of large.message.base.path and large.message.gs.*"
)
_AZURE: Final = "No store here reads references that begin with abs://; those of the store objects begin with az://"
_REFUSED: Final = {
    "large.message.s3.sts.role.arn": _ROLES,
    "large.message.s3.role.external.id": _ROLES,
    "large.message.s3.role.session.name": _ROLES,
    "large.message.s3.jwt.path": _ROLES,
    "large.message.s3.sdk.http.client.builder": "It names a Java class: remove it",
    "large.message.abs.connection.string": _AZURE,
    "large.message.gs.key.path": _GOOGLE,
    "large.message.gs.host": _GOOGLE,
    "large.message.gs.project": _GOOGLE,
}
_GENERATORS: Final = {
    "com.bakdata.kafka.RandomUUIDGenerator": "random",
    "com.bakdata.kafka.Sha256HashIdGenerator": "content",
    "com.bakdata.kafka.MurmurHashIdGenerator": "murmur3",
}
_SCHEMES: Final = {"gs": _GOOGLE, "abs": _AZURE}
_THRESHOLD: Final = 1_000_000
_KAFKA: Final = "org.apache.kafka.common.serialization."
_CONFLUENT_SERDES: Final = "io.confluent.kafka.streams.serdes."
_CONFLUENT: Final = {
    "avro.GenericAvroSerde": "avro",
    "avro.SpecificAvroSerde": "avro",
    "avro.ReflectionAvroSerde": "avro",
    "avro.PrimitiveAvroSerde": "avro",
    "protobuf.KafkaProtobufSerde": "protobuf",
    "json.KafkaJsonSchemaSerde": "json",
}
_FORMS: Final = {
    f"{field}.{word}": (f"large.message.{field}.serde", word)
    for field in ("key", "value")
    for word in ("serializer", "deserializer")
}
SOURCES: Final[Mapping[str, str]] = {
    **{ours: theirs for theirs, ours in _RENAMED.items()},
    **dict.fromkeys(("large.message.payload.store.class", "s3.bucket", "s3.prefix"), _BASE_PATH),
    **{f"{form}s": form for form in _FORMS},
    "large.message.id": _ID_GENERATOR,
    "large.message.format": _USE_HEADERS,
    "large.message.accept": _ACCEPT_NO_HEADERS,
}
"""By our key, the key of bakdata's from which it may be translated."""
_WORDS: Final = {
    *(_BASE_PATH, _USE_HEADERS, _ACCEPT_NO_HEADERS, _ID_GENERATOR),
    *(*_RENAMED, *_REFUSED),
    *(serde for serde, _ in _FORMS.values()),
}


def translated(config: Mapping[str, object]) -> dict[str, object]:
    """Translate a configuration into the keys of this project.

    Args:
        config: Flat configuration.

    Returns:
        A new dictionary; equal if it has no keys of bakdata's.

    Raises:
        ConfigError: A setting has no counterpart here, or is given under both names.
    """
    ours = {key: value for key, value in config.items() if key not in _WORDS}
    # In Java, most default to an empty string.
    given = {key: value for key, value in config.items() if key in _WORDS and value not in (None, "")}
    forms = [form for form in _FORMS if _is_class(ours.get(form), form)]
    lists = [form for form in _FORMS if _has_class(ours.get(f"{form}s"), form)]
    if not (given or forms or lists):
        return ours
    refused = next((key for key in _REFUSED if key in given), None)
    if refused is not None:
        raise ConfigError(f"{refused} cannot be followed here", hint=_REFUSED[refused], key=refused)
    for form in forms:
        _set(ours, f"{form}s", _chain(form, given), form)
        del ours[form]
    _check_serdes(given, forms)
    for key, settings in _settings(given).items():
        for name, value in settings.items():
            _set(ours, name, value, key)
    headers, no_headers = (Option(key, boolean, False).read(given) for key in (_USE_HEADERS, _ACCEPT_NO_HEADERS))
    return {
        "large.message.threshold.bytes": _THRESHOLD,
        "large.message.format": "bakdata-headers" if headers else "bakdata-flag",
        # A record without the header is flagged, or plain: the bytes do not show which.
        "large.message.accept": "bakdata-headers" if no_headers else "bakdata-headers, bakdata-flag",
        **ours,
    }


def _is_class(value: object, form: str) -> bool:
    return value == CLASS + form.partition(".")[2].capitalize()


def _has_class(value: object, form: str) -> bool:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        return False
    names = (item.get("class") if isinstance(item, Mapping) else item for item in items)
    return any(_is_class(name.strip(), form) for name in names if isinstance(name, str))


def _chain(form: str, given: Mapping[str, object]) -> list[object]:
    """The stages for an entry with the library's class: that of the inner serde, and large-message."""
    serde, word = _FORMS[form]
    inner = given.get(serde, f"{_KAFKA}Serdes$ByteArraySerde")
    if isinstance(inner, str):
        kafka = inner.removeprefix(f"{_KAFKA}Serdes$")
        if kafka != inner:
            inner = f"{_KAFKA}{kafka.removesuffix('Serde')}{word.capitalize()}"
        inner = _CONFLUENT.get(inner.removeprefix(_CONFLUENT_SERDES), inner)
    stages = [inner, "large-message"]
    return stages if word == "serializer" else stages[::-1]


def _check_serdes(given: Mapping[str, object], forms: Iterable[str]) -> None:
    for form, (serde, _) in _FORMS.items():
        field = form.partition(".")[0]
        if serde in given and not any(other.startswith(f"{field}.") for other in forms):
            raise ConfigError(
                f"{serde} goes with {field}.serializer = {CLASS}Serializer, or the deserializer",
                hint=f"Name the stages in {field}.serializers and {field}.deserializers, and leave it out",
                key=serde,
            )


def _settings(given: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Translate each key into those of this project."""
    settings: dict[str, dict[str, object]] = {key: {name: given[key]} for key, name in _RENAMED.items() if key in given}
    if _BASE_PATH in given:
        settings[_BASE_PATH] = _store(given[_BASE_PATH])
    generator = given.get(_ID_GENERATOR)
    if generator is not None:
        if not isinstance(generator, str) or generator not in _GENERATORS:
            raise ConfigError(
                f"{_ID_GENERATOR} = {generator!r} is not known here",
                hint=f"Known are {', '.join(_GENERATORS)}",
                key=_ID_GENERATOR,
            )
        settings[_ID_GENERATOR] = {"large.message.id": _GENERATORS[generator]}
    return settings


def _store(base_path: object) -> dict[str, object]:
    """The store of a base path, ``s3://bucket/some/prefix/``."""
    from urllib.parse import urlsplit  # few configurations need it

    url = urlsplit(base_path) if isinstance(base_path, str) else None
    if url is None or url.scheme != "s3" or not url.netloc:
        raise ConfigError(
            f"{_BASE_PATH} = {base_path!r} is not s3://<bucket>/<prefix>/",
            hint=_SCHEMES.get(url.scheme if url else "", "Name other stores in large.message.payload.store.class"),
            key=_BASE_PATH,
        )
    prefix = url.path.removeprefix("/")
    if prefix and not prefix.endswith("/"):
        raise ConfigError(
            f"{_BASE_PATH} = {base_path!r} does not end in a slash, so that it would be a part of the topics' names",
            hint="Add the slash; what was written without it is read with large.message.trusted.references = "
            f"s3://{url.netloc}/",
            key=_BASE_PATH,
        )
    settings: dict[str, object] = {"large.message.payload.store.class": "s3", "s3.bucket": url.netloc}
    return {**settings, "s3.prefix": prefix} if prefix else settings


def _set(ours: dict[str, object], name: str, value: object, key: str) -> None:
    if ours.get(name) is not None:
        raise ConfigError(f"{key} and {name} exclude each other", hint="Set one of them", key=key)
    ours[name] = value
