"""The common part of the S3 servers: an address, credentials, buckets."""

import uuid
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

REGION = "us-east-1"


class S3Endpoint(Protocol):
    """An S3 service on this machine."""

    @property
    def url(self) -> str:
        """The endpoint's address."""
        ...

    access_key: str
    secret_key: str

    def client(self) -> "S3Client":
        """A boto3 client for this service."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"),
        )

    def create_bucket(self, name: str | None = None) -> str:
        """Create a bucket.

        Args:
            name: Its name; by default a unique one.

        Returns:
            The bucket's name.
        """
        name = name or f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name

    def store_config(self, bucket: str) -> dict[str, str]:
        """Configuration of the payload store ``s3`` for a bucket of this service."""
        return {
            "s3.bucket": bucket,
            "s3.endpoint.url": self.url,
            "s3.region": REGION,
            "s3.access.key": self.access_key,
            "s3.secret.key": self.secret_key,
            "s3.path.style.access": "true",
        }

    def objects_config(self, bucket: str, folder: str = "") -> dict[str, str]:
        """Configuration of the payload store ``objects`` for a folder in a bucket of this service."""
        return {
            "objects.url": f"s3://{bucket}/{folder}",
            "objects.endpoint": self.url,
            "objects.region": REGION,
            "objects.access_key_id": self.access_key,
            "objects.secret_access_key": self.secret_key,
            "objects.allow_http": "true",
        }
