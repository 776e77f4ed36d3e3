"""A payload store in a bucket of S3 or an S3-compatible server (boto3).

Keys are ``<s3.prefix><topic>/<id>``, references are ``s3://<s3.bucket>/<s3.prefix><topic>/<id>``.

botocore (in "standard" mode) retries requests without an answer or with a temporary refusal, up to
``s3.retry.attempts`` attempts. With the defaults a request takes less than a minute in the worst case, less than
Kafka's default ``max.block.ms`` (KIP-1159).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

from payload_stores import references
from payload_stores.base import Lifetimes
from payload_stores.buckets import BucketStore
from payload_stores.errors import ConfigError, PayloadStoreError
from payload_stores.multipart import PARALLEL, DaemonPool
from payload_stores.options import Option, boolean, choice, integer, text, without_login
from payload_stores.plugins import require
from payload_stores.s3.driver import DIRECTORY_BUCKET, S3Driver
from payload_stores.s3.errors import NO_RULES, NOT_IMPLEMENTED, error_code, field
from payload_stores.s3.lifecycle import lifetimes, with_expiration, with_versions
from payload_stores.s3.times import with_fast_times

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ENCRYPTION: Final = {"aes256": "AES256", "aws:kms": "aws:kms", "aws:kms:dsse": "aws:kms:dsse"}

# botocore's standard mode waits up to 1, 2, 4, … 20 s between attempts, and up to 5 s more if a server requests it.
_MAX_BACKOFF_MS: Final = 20_000
_MAX_RETRY_AFTER_MS: Final = 5_000

# Before sending a body, botocore waits this long for the server's consent ("Expect: 100-continue").
_EXPECT_MS: Final = 1_000

# Uploads (8 by default) and their parts share the connections; with fewer, they would wait or open new ones.
_CONNECTIONS: Final = 64


class S3Store(BucketStore):
    """Stores payloads as S3 objects.

    Payloads up to ``s3.multipart.threshold.bytes`` are uploaded in one request, larger ones in parallel parts;
    downloads of more than 8 MiB use parallel ranges. With ids of the content, an existing object is not replaced
    (``If-None-Match: *``).

    Without configured credentials, boto3 searches its usual sources. Trusted references may be read, but are never
    deleted: they belong to another program.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads", "s3.prefix": "alerts/"})  # doctest: +SKIP
        >>> store.publish("images", b"payload")  # doctest: +SKIP
        's3://payloads/alerts/images/6c8f2c2e-5d0c-4f5e-9d8e-0a6f2f1f3b7a'
    """

    scheme = "s3"
    _links = "S3 links are"
    _driver: S3Driver

    BUCKET: ClassVar[Option[str]] = Option("s3.bucket", text, "", required=True, doc="bucket for the payloads")
    PREFIX: ClassVar[Option[str]] = Option("s3.prefix", text, "", doc="folder in the bucket, such as payloads/")
    ENDPOINT: ClassVar[Option[str]] = Option("s3.endpoint.url", text, "", doc="server, if it is not Amazon's")
    REGION: ClassVar[Option[str]] = Option("s3.region", text, "", doc="region; default: boto3's, then us-east-1")
    ACCESS_KEY: ClassVar[Option[str]] = Option("s3.access.key", text, "", doc="access key; default: boto3's")
    SECRET_KEY: ClassVar[Option[str]] = Option("s3.secret.key", text, "", secret=True, doc="its secret")
    SESSION_TOKEN: ClassVar[Option[str]] = Option("s3.session.token", text, "", secret=True, doc="its session token")
    PATH_STYLE: ClassVar[Option[bool | None]] = Option(
        "s3.path.style.access", boolean, None, doc="bucket in the path, not the host; default if s3.endpoint.url is set"
    )
    ATTEMPTS: ClassVar[Option[int]] = Option("s3.retry.attempts", integer(1), 3, doc="total attempts per request")
    CONNECT_MS: ClassVar[Option[int]] = Option("s3.connection.timeout.ms", integer(1), 5_000, doc="to connect")
    REQUEST_MS: ClassVar[Option[int]] = Option(
        "s3.request.timeout.ms", integer(1), 9_000, doc="for the server to answer, or to go on with its answer"
    )
    THRESHOLD: ClassVar[Option[int]] = Option(
        "s3.multipart.threshold.bytes", integer(1), 64 << 20, doc="payloads above it are uploaded in parts"
    )
    CHECKSUMS: ClassVar[Option[str]] = Option(
        "s3.checksum.calculation",
        choice("when_supported", "when_required"),
        "when_supported",
        doc="when_required for servers that do not know Amazon's newer checksums",
    )
    ENCRYPTION: ClassVar[Option[str]] = Option(
        "s3.server.side.encryption", choice(*_ENCRYPTION), "", doc="encryption of payloads; default: the bucket's own"
    )
    KMS_KEY: ClassVar[Option[str]] = Option("s3.kms.key.id", text, "", doc="implies aws:kms")
    OWNER: ClassVar[Option[str]] = Option(
        "s3.expected.bucket.owner", text, "", doc="account that must own the bucket; others' are refused"
    )
    options = (
        BUCKET, PREFIX, ENDPOINT, REGION, ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, PATH_STYLE, ATTEMPTS, CONNECT_MS,
        REQUEST_MS, THRESHOLD, CHECKSUMS, ENCRYPTION, KMS_KEY, OWNER,
    )  # fmt: skip

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the ``s3.*`` keys and create the client, without I/O. See :meth:`PayloadStore.configure`."""
        super().configure(config)
        self._bucket = self._read_bucket(config)
        self.roots = references.Roots(self, self._bucket, self._read_prefix(config))
        self._attempts = self.ATTEMPTS.read(config)
        self._timeouts_ms = (self.CONNECT_MS.read(config), self.REQUEST_MS.read(config))
        create = self._encryption(config)
        self._client = self._make_client(config)
        if owner := self.OWNER.read(config):
            self._expect_owner(owner)
        threads = DaemonPool(PARALLEL)
        self._driver = S3Driver(
            self._client,
            self._bucket,
            threads,
            create=create,
            checksums=self.CHECKSUMS.read(config) == "when_supported",
            threshold=self.THRESHOLD.read(config),
            attempts=self._attempts,
        )
        self._start(self._driver, threads)

    def expiration(self, topic: str) -> timedelta | None:
        """Read the bucket's lifecycle rules. See :class:`~payload_stores.SupportsExpiration`.

        Rules for tags do not apply, since payloads have none. Requires ``s3:GetLifecycleConfiguration``.
        """
        folder = self._folder(topic)
        with self._about_rules(topic):
            return lifetimes(self._rules()["Rules"], folder, datetime.now(UTC)).shortest

    def lifetimes(self, topic: str) -> Lifetimes:
        """Compare the bucket's lifecycle rules. See :class:`~payload_stores.SupportsLifetimes`.

        In a bucket with versions, rules with ``Expiration`` only hide payloads: those that are deleted are noncurrent
        versions. Requires ``s3:GetLifecycleConfiguration`` and, if rules cover the topic, ``s3:GetBucketVersioning``.
        """
        folder = self._folder(topic)
        with self._about_rules(topic):
            rules = self._rules()["Rules"]
        found = lifetimes(rules, folder, datetime.now(UTC))
        if found.longest is None:
            return found
        with self._translated(topic=topic):
            return with_versions(found, rules, folder) if self._has_versions() else found

    def set_expiration(self, topic: str, age: timedelta | None) -> None:
        """Add, change or remove the topic's lifecycle rule. See :class:`~payload_stores.SupportsExpiration`.

        Its name is ``serde-chain-<s3.prefix><topic>``.

        S3 accepts only all rules of a bucket at once: changes by another program between reading and writing are lost.
        Requires ``s3:GetLifecycleConfiguration`` and ``s3:PutLifecycleConfiguration``.
        """
        folder = self._folder(topic)
        with self._about_rules(topic):
            found = self._rules()
            rules = with_expiration(found["Rules"], folder, age)
            if rules == found["Rules"]:
                return
            if not rules:
                self._client.delete_bucket_lifecycle(Bucket=self._bucket)
                return
            # Otherwise it would revert to its default.
            kept = {name: found[name] for name in ("TransitionDefaultMinimumObjectSize",) if name in found}
            put: Any = self._client.put_bucket_lifecycle_configuration
            put(Bucket=self._bucket, LifecycleConfiguration={"Rules": rules}, **kept)

    def now(self) -> datetime:
        """The server's time, of its answer about the bucket. See :class:`~payload_stores.SupportsClock`."""
        with self._translated():
            answer: Any = self._client.head_bucket(Bucket=self._bucket)
            server_date = field(answer["ResponseMetadata"]["HTTPHeaders"], "date")
            return parsedate_to_datetime(server_date).astimezone(UTC)

    def remove_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Abort multipart uploads left by killed writers below ``s3.prefix``; their parts are billed.

        See :class:`~payload_stores.SupportsLeftovers`. Not automatic: it requires the permission
        ``s3:ListBucketMultipartUploads``, and without a prefix it covers the whole bucket. A lifecycle rule with
        ``AbortIncompleteMultipartUpload`` does the same.
        """
        with self._translated():
            return self._driver.parts.abort_older(*self._leftovers(older_than_ms))

    def count_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Count multipart uploads left by killed writers. See :class:`~payload_stores.SupportsLeftoverCount`."""
        with self._translated():
            return sum(1 for _ in self._driver.parts.older(*self._leftovers(older_than_ms)))

    def _leftovers(self, older_than_ms: int) -> tuple[str, str, datetime]:
        """Bucket, prefix and latest start of such uploads."""
        limit = datetime.now(UTC) - timedelta(milliseconds=older_than_ms)
        return self._bucket, "".join(f"{segment}/" for segment in self.roots.own.segments), limit

    @property
    def retries(self) -> int:
        """Number of retries, by botocore or here. See :class:`~payload_stores.SupportsRetryCount`."""
        return self._driver.repeated.count

    def worst_case_ms(self) -> int:
        """Maximum time in ms until a request without an answer fails permanently.

        For a server that answers a few bytes at a time, only a deadline around the store sets a bound.
        """
        waits = (min(1000 << number, _MAX_BACKOFF_MS) + _MAX_RETRY_AFTER_MS for number in range(self._attempts - 1))
        return self._attempts * (sum(self._timeouts_ms) + _EXPECT_MS) + sum(waits)

    def _rules(self) -> Mapping[str, Any]:
        try:
            return cast("Mapping[str, Any]", self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket))
        except Exception as error:
            if error_code(error) not in NO_RULES:
                raise
        return {"Rules": []}

    def _has_versions(self) -> bool:
        """Whether deleted objects remain as noncurrent versions; where versioning is suspended, new ones do not."""
        if self._bucket.endswith(DIRECTORY_BUCKET):
            return False
        try:
            return self._client.get_bucket_versioning(Bucket=self._bucket).get("Status") == "Enabled"
        except Exception as error:
            if error_code(error) not in NOT_IMPLEMENTED:
                raise
        return False

    @contextmanager
    def _about_rules(self, topic: str) -> Iterator[None]:
        with self._translated(topic=topic):
            try:
                yield
            except Exception as error:
                if error_code(error) not in NOT_IMPLEMENTED:
                    raise
                raise PayloadStoreError("the server has no lifecycle rules, or not this one") from error

    def _expect_owner(self, owner: str) -> None:
        """Make S3 refuse requests if the bucket does not belong to an account: its name may be someone else's by now.

        Trusted references may be in buckets of others. Programs that follow a link do not send the header.
        """

        def expect(params: dict[str, Any], context: Mapping[str, Any], **_: object) -> None:
            if params.get("Bucket") == self._bucket and not context.get("is_presign_request"):
                params["ExpectedBucketOwner"] = owner

        self._client.meta.events.register("before-parameter-build.s3", expect)

    def _read_bucket(self, config: Mapping[str, object]) -> str:
        bucket = self.BUCKET.read(config)
        if "/" in bucket and not bucket.startswith("arn:"):  # botocore would only report it with the first payload
            raise ConfigError(
                f"{self.BUCKET.name} = {bucket!r} is not the name of a bucket",
                hint=f"Write the name alone, and the folder into {self.PREFIX.name}",
                key=self.BUCKET.name,
            )
        return bucket

    def _read_prefix(self, config: Mapping[str, object]) -> tuple[str, ...]:
        prefix = self.PREFIX.read(config)
        if not prefix:
            return ()
        # Add a missing trailing slash: otherwise "pre" would also cover another program's "prefix2".
        segments = tuple(prefix.removesuffix("/").split("/"))
        if any(segment in {"", ".", ".."} for segment in segments):
            raise ConfigError(
                f"{self.PREFIX.name} = {prefix!r} has an empty segment, '.' or '..'",
                hint="Write it like payloads/ or team/payloads/",
                key=self.PREFIX.name,
            )
        return segments

    def _encryption(self, config: Mapping[str, object]) -> dict[str, str]:
        algorithm, key = _ENCRYPTION.get(self.ENCRYPTION.read(config), ""), self.KMS_KEY.read(config)
        if key and algorithm == "AES256":
            raise ConfigError(f"{self.KMS_KEY.name} needs {self.ENCRYPTION.name} = aws:kms", key=self.KMS_KEY.name)
        if key:
            return {"ServerSideEncryption": algorithm or "aws:kms", "SSEKMSKeyId": key}
        return {"ServerSideEncryption": algorithm} if algorithm else {}

    def _make_client(self, config: Mapping[str, object]) -> S3Client:
        require("boto3", "s3")
        import boto3.session
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        endpoint = without_login(self.ENDPOINT.read(config), self.ENDPOINT.name)
        path_style = self.PATH_STYLE.read(config)
        if path_style is None:
            path_style = bool(endpoint)
        access_key, secret_key = self.ACCESS_KEY.read(config), self.SECRET_KEY.read(config)
        if bool(access_key) != bool(secret_key):
            missing = self.SECRET_KEY if access_key else self.ACCESS_KEY
            raise ConfigError(
                f"{self.ACCESS_KEY.name} and {self.SECRET_KEY.name} belong together, {missing.name} is missing",
                key=missing.name,
            )
        connect_ms, request_ms = self._timeouts_ms
        checksums = cast("Literal['when_supported', 'when_required']", self.CHECKSUMS.read(config))
        try:
            # A separate session: boto3 creates its default session on first use, which is not thread-safe.
            session = boto3.session.Session(botocore_session=with_fast_times(botocore.session.get_session()))
            return session.client(
                "s3",
                region_name=self.REGION.read(config) or session.region_name or "us-east-1",
                endpoint_url=endpoint or None,
                aws_access_key_id=access_key or None,
                aws_secret_access_key=secret_key or None,
                aws_session_token=self.SESSION_TOKEN.read(config) or None,
                config=Config(
                    signature_version="s3v4",
                    connect_timeout=connect_ms / 1000,
                    read_timeout=request_ms / 1000,
                    retries={"total_max_attempts": self._attempts, "mode": "standard"},
                    max_pool_connections=_CONNECTIONS,
                    request_checksum_calculation=checksums,
                    response_checksum_validation="when_required",
                    s3={"addressing_style": "path" if path_style else "auto"},
                ),
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(
                f"boto3 cannot create an S3 client from these settings: {error}",
                hint="Write the server with its scheme: https://host:port, or http://host:port" if endpoint else None,
                key=self.ENDPOINT.name,
            ) from error
