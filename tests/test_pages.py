"""The code on the pages runs, in an environment that holds what the page tells its reader to install."""

import ast
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import RuleSet, Schema

from serde_chain import DecodeError, DeserializerChain, SerializerChain
from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry
from serde_chain.testing.services.ports import free_ports
from tests.environments import ROOT, Environment, install_line, parts, python_blocks, section
from tests.schemas.confluent_registry import confluent_registries
from tests.schemas.encrypted import encrypting

pytestmark = pytest.mark.full

Installed = Callable[[str], Environment]
PAGES = {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))}
WITH_CODE = {
    f"{name}-{number}": part
    for name, page in PAGES.items()
    for number, part in enumerate(parts(page))
    if python_blocks(part)
}
README = python_blocks(PAGES["README.md"])


def substituted(code: str, broker: KafkaBroker, folder: Path) -> str:
    """The code with the broker and the folder of a test in place of the page's."""
    return code.replace("localhost:9092", broker.bootstrap_servers).replace("/tmp/serde-chain-payloads", str(folder))  # noqa: S108, the page's text


@pytest.mark.parametrize("page", WITH_CODE.values(), ids=list(WITH_CODE))
def test_what_a_page_imports_is_what_it_tells_to_install(page: str, installed: Installed, tmp_path: Path) -> None:
    statements = [
        ast.unparse(node)
        for block in python_blocks(page)
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    files = "|".join(re.findall(r"^# (\w+)\.py$", page, re.MULTILINE))
    others = {
        statement for statement in statements if not (files and re.match(rf"(?:from|import) (?:{files})\b", statement))
    }
    installed(install_line(page)).run("\n".join(sorted(others)), tmp_path)


@pytest.mark.parametrize("block", README, ids=lambda block: block.splitlines()[0])
def test_readme(block: str, installed: Installed, broker: KafkaBroker, tmp_path: Path) -> None:
    if "localhost:9092" in block:
        broker.create_topic("images")
    printed = installed(install_line(PAGES["README.md"])).run(substituted(block, broker, tmp_path), tmp_path)
    told = re.findall(r"It prints:\n\n```text\n(.*?)```", PAGES["README.md"], re.DOTALL)
    assert printed == (told[0] if "images" in block else "")


@pytest.mark.parametrize("missing", ["topic", "broker"])
def test_readme_without_what_it_requires(missing: str, broker: KafkaBroker, tmp_path: Path) -> None:
    """It ends by itself, with one sentence, instead of after librdkafka's five minutes."""
    [program] = [block for block in README if "localhost:9092" in block]
    (sentence,) = re.findall(r'SystemExit\("(not delivered: .*)"\)', program)
    (port,) = free_ports(1)
    address = broker.bootstrap_servers if missing == "topic" else f"127.0.0.1:{port}"
    program = program.replace('": "localhost:9092"', f'": "{address}"').replace('"images"', '"no-images"')
    program = program.replace("/tmp/serde-chain-payloads", str(tmp_path))  # noqa: S108, the page's text
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert sentence in done.stderr.splitlines()
    assert len(done.stderr.splitlines()) <= 4
    assert "Traceback" not in done.stderr


def test_readme_commands(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(
        re.findall(r"```properties\n(.*?)```", PAGES["README.md"], re.DOTALL)[0]
    )
    (tmp_path / "alert.avsc").write_text('"string"')
    environment = installed(install_line(PAGES["README.md"]))
    assert "large-message" in environment.serde_chain("check-config", "client.properties", folder=tmp_path)
    assert "--offset" in environment.serde_chain("inspect", "--help", folder=tmp_path)


def test_installation_names_every_extra() -> None:
    listed = re.findall(r"^\| `(\S+)` \|", PAGES["installation.md"].partition("## Extras")[2], re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(listed) == set(EXTRAS) == project["optional-dependencies"].keys() - {"all"}


def test_arrow(installed: Installed, broker: KafkaBroker, tmp_path: Path) -> None:
    blocks = python_blocks(PAGES["arrow.md"])
    assert len(blocks) == 5
    broker.create_topic("arrow-alerts")
    broker.create_topic("alert-copies")
    code = substituted("\n".join(blocks), broker, tmp_path).replace('"alerts"', '"arrow-alerts"')
    columns, values = installed(install_line(PAGES["arrow.md"])).run(code, tmp_path).splitlines()
    assert columns == "['topic', 'partition', 'offset', 'timestamp', 'key', 'headers', 'value']"
    assert values == "['key', 'value.id', 'value.band'] g"


def test_models(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = section(PAGES["values.md"], "Models: values as objects of a class")
    code = substituted("\n".join(python_blocks(page)), broker, tmp_path).replace('"alerts"', f'"{topic}"')
    assert installed(install_line(page)).run(code, tmp_path) == "7 Band.RED ['new']\n"


def test_values(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = parts(PAGES["values.md"])[0]
    client, messages, batch = python_blocks(page)
    environment = installed(install_line(page))
    client = substituted(client, broker, tmp_path).replace('"frames"', f'"{topic}"')
    assert environment.run(client, tmp_path) == "float32 (2048, 2048)\n"
    assert len(list((tmp_path / topic).rglob("*"))) > 0
    environment.run(messages, tmp_path)
    environment.run(batch, tmp_path)


def test_registries(installed: Installed, registry: SchemaRegistry, topic: str, tmp_path: Path) -> None:
    page = PAGES["registries.md"]
    (settings,) = re.findall(r"```properties\n# client.properties\n(.*?)```", page, re.DOTALL)
    (tmp_path / "client.properties").write_text(settings.replace("http://localhost:8081", registry.url))
    (tmp_path / "alert.avsc").write_text(json.dumps({"type": "record", "name": "Alert", "fields": []}))
    program = f"""
from serde_chain import DeserializerChain, RecordContext, SerializerChain
ctx = RecordContext("{topic}", "value", [])
config = "client.properties"
with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
    print(read(write({{}}, ctx), ctx))
"""
    assert installed(install_line(page)).run(program, tmp_path) == "{}\n"
    (code,) = python_blocks(page)
    code = code.replace("http://localhost:8081", registry.url).replace('"events', f'"{topic}')
    for part in ("customers", "products"):
        code = code.replace(f'"{part}-value"', f'"{topic}-{part}-value"')
    expected = "{'name': 'Ada'}\n{'price': 2}\n"
    assert installed(install_line(page)).run(code, tmp_path) == expected


def test_share_groups(installed: Installed, share_broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = section(PAGES["asyncio.md"], "Share groups")
    first, code, service = (
        substituted(block, share_broker, tmp_path).replace('"images"', f'"{topic}"').replace('"workers"', f'"{topic}"')
        for block in python_blocks(page)
    )
    share_broker.create_topic(topic)
    environment = installed(install_line(page))
    assert environment.run(first + code, tmp_path) == "2000000 1\n"

    whole = f"{code[: code.index('with ShareConsumer')]}{service}print('closed')"
    with subprocess.Popen([str(environment.python), "-I", "-c", whole], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "2000000\n"
        process.terminate()
        assert process.communicate(timeout=30)[0] == "closed\n"
    assert process.returncode == 0
    # Nothing is delivered to the next member but a new record: the service has accepted its last one.
    assert environment.run(code.replace("bytes(2_000_000)", "bytes(3_000_000)"), tmp_path) == "3000000 1\n"


def test_specification(installed: Installed, tmp_path: Path) -> None:
    (code,) = python_blocks(PAGES["wire-formats.md"])
    installed(install_line(PAGES["wire-formats.md"])).run(code, tmp_path)


def test_consume(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = parts(PAGES["consume.md"])[0]
    (code,) = python_blocks(page)
    broker.create_topic(f"{topic}-dead")
    changed = substituted(code, broker, tmp_path).replace('"tiles', f'"{topic}')
    assert installed(install_line(page)).run(changed, tmp_path) == "M 51 2000000\n"


def test_delivery(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    (code,) = python_blocks(PAGES["delivery.md"])
    broker.create_topic(f"{topic}-copies")
    names = {'"frames"': f'"{topic}"', '"frame-copies"': f'"{topic}-copies"', "copy-1": topic, '"copy"': f'"{topic}"'}
    code = substituted(code, broker, tmp_path)
    for name, other in names.items():
        code = code.replace(name, other)
    assert installed(install_line(PAGES["delivery.md"])).run(code, tmp_path) == "1\n"


def test_from_confluent_kafka(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = parts(PAGES["confluent-kafka.md"])[0]
    (code,) = python_blocks(page)
    code = substituted(code, broker, tmp_path).replace('"files"', f'"{topic}"')
    printed = installed(install_line(page)).run(code, tmp_path)
    assert printed == "None b'M 51'\nb'M 51' 20000000\n"


def test_asyncio(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = parts(PAGES["asyncio.md"])[0]
    code, service = (
        substituted(block, broker, tmp_path).replace('"spectra"', f'"{topic}"') for block in python_blocks(page)
    )
    environment = installed(install_line(page))
    printed = environment.run(code, tmp_path)
    assert printed == "0\n{'name': 'M 51'} [('band', b'g')]\n"

    whole = f"{code[code.index('config =') : code.index('async def')]}{service}"
    command = [str(environment.python), "-I", "-c", f"{whole}print('closed')"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "{'name': 'M 51'}\n"
        process.terminate()
        assert process.communicate(timeout=30)[0] == "closed\n"
    assert process.returncode == 0


def test_aiokafka_and_faststream(installed: Installed, broker: KafkaBroker, tmp_path: Path) -> None:
    page = section(PAGES["asyncio.md"], "aiokafka and FastStream")
    blocks = python_blocks(page)
    environment = installed(install_line(page))
    for block, topic, expected in zip(
        blocks, ("spectra", "pictures"), ("0\n{'name': 'M 51'} (('band', b'g'),)\n", "M 51 3000000 g\n"), strict=True
    ):
        name = f"{topic}-{tmp_path.name}"
        broker.create_topic(name)
        code = substituted(block, broker, tmp_path).replace(f'"{topic}"', f'"{name}"')
        assert expected in environment.run(code, tmp_path)  # FastStream logs there too
    assert [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size > 1_000_000]


def test_kafka_python(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = section(PAGES["asyncio.md"], "kafka-python")
    (code,) = python_blocks(page)
    code = substituted(code, broker, tmp_path).replace('"spectra"', f'"{topic}"')
    printed = installed(install_line(page)).run(code, tmp_path)
    assert printed == "{'name': 'M 51'} [('band', b'g')]\n"


def test_telemetry(installed: Installed, tmp_path: Path) -> None:
    page = PAGES["telemetry.md"]
    printed = installed(install_line(page)).run("\n".join(python_blocks(page)), tmp_path)
    assert '"name": "offload images"' in printed
    assert '"messaging.message.body.size": 2000000' in printed
    (figures,) = re.findall(r"It prints:\n\n```text\n(.*?)```", page, re.DOTALL)
    assert printed.endswith(figures)


def test_large_messages(installed: Installed, broker: KafkaBroker, tmp_path: Path) -> None:
    page = parts(PAGES["large-messages.md"])[0]
    topic = "large-images"
    broker.create_topic(topic)
    code = substituted("\n".join(python_blocks(page)), broker, tmp_path / "store").replace('"exposures"', f'"{topic}"')
    printed = installed(install_line(page)).run(code, tmp_path)
    assert printed == f"<PayloadHandle of 5000000 bytes, in a payload store> 5000000\n{bytes(10)!r}\n"
    assert [path.stat().st_size for path in (tmp_path / "store" / topic).iterdir()] == [5_000_000]


def test_large_fields(installed: Installed, broker: KafkaBroker, tmp_path: Path) -> None:
    page = PAGES["large-fields.md"]
    topic = "large-supernovae"
    broker.create_topic(topic)
    code = substituted("\n".join(python_blocks(page)), broker, tmp_path / "store").replace('"supernovae"', f'"{topic}"')
    printed = installed(install_line(page)).run(code, tmp_path)
    assert printed == "[('SN 99', 20000)]\nstruct<object: string not null, flux: double not null>\n"
    assert len(list((tmp_path / "store" / topic).iterdir())) == 200


def test_at_scale(installed: Installed, broker: KafkaBroker, s3_server: S3Server, topic: str, tmp_path: Path) -> None:
    page = PAGES["at-scale.md"]
    (code,) = python_blocks(page)
    access = repr(s3_server.store_config(s3_server.create_bucket()))[1:-1]
    code = substituted(code, broker, tmp_path).replace('"s3.bucket": "payloads"', access).replace("exposures", topic)
    assert installed(install_line(page)).run(code, tmp_path) == "1 0\n"


def test_payloads_in_kafka(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "stores" / "kafka.md").read_text(encoding="utf-8")
    (code,) = python_blocks(page)
    code = substituted(code, broker, tmp_path).replace('"plates"', f'"{topic}"')
    assert installed(install_line(page)).run(code, tmp_path) == "b'M 51' 20000000\n"


def test_integrations(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    page = section(PAGES["confluent-kafka.md"], "Chains in other clients, and other serializers in chains")
    blocks = python_blocks(page)
    assert len(blocks) == 4
    code = substituted("\n".join(blocks), broker, tmp_path).replace('"stars"', f'"{topic}"')
    installed(install_line(page)).run(code, tmp_path)


def test_entry_metadata(installed: Installed, tmp_path: Path) -> None:
    (code,) = python_blocks(PAGES["entry-metadata.md"])
    environment = installed(install_line(PAGES["entry-metadata.md"]))
    environment.run(code, tmp_path)
    assert "--check" in environment.serde_chain("stamp", "--help", folder=tmp_path)


FILLED = """
from payload_stores import open_store
from serde_chain import Producer
from serde_chain.config import load

config = load("client.toml")
with Producer(config) as producer:
    producer.produce("TOPIC", bytes(500))
open_store("local", config).publish("TOPIC", bytes(300))
"""


def test_jobs_without_spark(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    environment = installed("serde-chain[kafka,cli]")
    assert not [path for path in environment.packages.iterdir() if path.name in {"pyspark", "pyarrow", "pandas"}]
    broker.create_topic(f"{topic}-copy")
    stored = {"value.serializers": "bytes, large-message", "large.message.payload.store.class": "local"}
    client = {**broker.client_config(), **stored, "large.message.threshold.bytes": 100, "local.path": str(tmp_path)}
    for name, path in (("client.toml", "payloads"), ("target.toml", "moved")):
        config = {**client, "local.path": str(tmp_path / path)}
        lines = (f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in config.items())
        (tmp_path / name).write_text("".join(lines))
    environment.run(FILLED.replace("TOPIC", topic), tmp_path)
    calls = ("sweep", "client.toml", topic, "--grace", "0s", "--delete"), ("audit", "client.toml", topic)
    swept, audited = (environment.serde_chain(*call, folder=tmp_path) for call in calls)
    assert "1 deleted, 300 bytes" in swept
    assert audited == "1 reference, 0 problems\n"
    moved = environment.serde_chain("migrate", "client.toml", "target.toml", topic, f"{topic}-copy", folder=tmp_path)
    assert moved == "1 record copied, 1 payload moved\n"


def test_bakdata(installed: Installed, s3_server: S3Server, tmp_path: Path) -> None:
    page = section(PAGES["migrations.md"], "bakdata's kafka-large-message-serde")
    (properties,) = re.findall(r"```properties\n(.*?)```", page, re.DOTALL)
    bucket = s3_server.create_bucket()
    changed = properties.replace("http://localhost:9000", s3_server.url).replace("my-bucket", bucket)
    (tmp_path / "client.properties").write_text(changed)
    (code,) = python_blocks(page)
    environment = installed(install_line(page))
    environment.run(code.replace("my-bucket", bucket), tmp_path)
    assert bucket in environment.serde_chain("check-config", "client.properties", folder=tmp_path)


def test_tests_of_a_service(installed: Installed, tmp_path: Path) -> None:
    page = section(PAGES["services.md"], "Tests of your service")
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(code, encoding="utf-8")
    installed(install_line(page)).pytest(tmp_path)


def test_compacted_topics(
    installed: Installed, broker: KafkaBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    page = section(PAGES["large-messages.md"], "Compacted topics")
    topic, store = new_topic(1, {"cleanup.policy": "compact"}), tmp_path / "store"
    (code,) = python_blocks(page)
    environment = installed(install_line(page))
    environment.run(substituted(code, broker, store).replace('"models"', f'"{topic}"'), tmp_path)
    settings = {
        **broker.client_config(),
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "local.path": str(store),
    }
    lines = (f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in settings.items())
    (tmp_path / "client.toml").write_text("".join(lines))
    (folder,) = (store / topic).iterdir()  # of the key
    assert len(list(folder.iterdir())) == 2
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, None, b"galaxy-classifier")
    assert producer.flush(30) == 0
    shown = environment.serde_chain("sweep", "client.toml", topic, "--tombstones", "--grace", "0s", folder=tmp_path)
    assert shown in page


def test_an_infinite_time_of_a_database() -> None:
    """The reader schema on the page of change data capture reads the number, and the error is the page's."""
    page = section(PAGES["consume.md"], "Change data capture")
    (settings,) = re.findall(r"```properties\n(.*?)```", page, re.DOTALL)
    target = json.loads(settings.partition(" = ")[2].replace("\\\n", ""))
    dated = json.loads(json.dumps(target).replace('"long"]', '{"type": "long", "logicalType": "timestamp-micros"}]'))
    framed = {"value.serializer": "avro", "value.deserializer": "avro", "avro.framing": "single-object"}
    infinite = {"op": "c", "after": {"id": 7, "paid": 9223372036825200000}}
    with (
        SerializerChain.from_config({**framed, "avro.schema": target}) as write,
        DeserializerChain.from_config({**framed, "avro.schema": dated}) as strict,
        DeserializerChain.from_config({**framed, "avro.schema": dated, "avro.reader.schema": target}) as read,
    ):
        with pytest.raises(DecodeError) as caught:
            strict(write(infinite))
        assert f"`{caught.value.message}`" in page
        assert read(write(infinite)) == infinite


def test_cdc(installed: Installed, broker: KafkaBroker, registry: SchemaRegistry, topic: str, tmp_path: Path) -> None:
    page = section(PAGES["consume.md"], "Change data capture")
    code = substituted("\n".join(python_blocks(page)), broker, tmp_path)
    code = code.replace("http://localhost:8081", registry.url).replace('("shop.orders"', f'("{topic}"')
    (expected,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert installed(install_line(page)).run(code, tmp_path) == expected


def test_tenants(installed: Installed, tmp_path: Path) -> None:
    page = section(PAGES["security.md"], "Several tenants")
    (tmp_path / "tenants.properties").write_text(*re.findall(r"```properties\n(.*?)```", page, re.DOTALL))
    (command,) = re.findall(r"\$ serde-chain (.*)", page)
    printed = installed(install_line(page)).serde_chain(*command.split(), folder=tmp_path)
    assert all(word in printed for word in ("survey-alerts", "s3.prefix = survey/", "s3.bucket = lab", "none"))
    assert "survey-secret" not in printed


def test_encryption_and_rollout(installed: Installed, tmp_path: Path) -> None:
    rolling_out = section(PAGES["migrations.md"], "Rolling out and rolling back")
    for page in (parts(PAGES["encryption.md"])[0], rolling_out):
        installed(install_line(page)).run("\n".join(python_blocks(page)), tmp_path)


def test_csfle(installed: Installed, tmp_path: Path) -> None:
    page = section(PAGES["encryption.md"], "Confluent's field encryption (CSFLE)")
    environment = installed(install_line(page))
    record, module, table = python_blocks(page)
    environment.run(record, tmp_path)
    (tmp_path / "observers.py").write_text(module, encoding="utf-8")
    (settings,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    with confluent_registries() as registries:
        schema = ast.literal_eval(*re.findall(r'^schema = (""".*?""")$', record, re.MULTILINE | re.DOTALL))
        rule = encrypting()
        registries.schemas.register_schema("observers-value", Schema(schema, "AVRO", [], None, RuleSet(None, [rule])))
        (tmp_path / "observers.toml").write_text(settings.replace("http://localhost:8081", registries.url))
        start = f"import os, sys; sys.path.append({str(tmp_path)!r}); os.environ['OBSERVERS_SECRET'] = 'a secret'\n"
        environment.run(start + table, tmp_path)
        assert any(path.startswith("/dek-registry") for path in registries.asked)


def test_migrations(installed: Installed, broker: KafkaBroker, s3_server: S3Server, tmp_path: Path) -> None:
    page = parts(PAGES["migrations.md"])[0]
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(code)
    bucket = s3_server.create_bucket()
    foreign, target, properties = (
        substituted(block, broker, tmp_path) for block in re.findall(r"```properties\n(.*?)```", page, re.DOTALL)
    )
    access = "".join(f"{key} = {value}\n" for key, value in s3_server.store_config(bucket).items())
    (tmp_path / "foreign.properties").write_text(foreign.replace("s3.bucket = payloads\n", access))
    (tmp_path / "target.properties").write_text(target.replace("s3.bucket = payloads\n", access))
    s3_server.client().put_object(Bucket=bucket, Key="ns/1", Body=b'{"flux": 1}')
    envelope = {"kfs_lfs": 1, "bucket": bucket, "key": "ns/1", "sha256": hashlib.sha256(b'{"flux": 1}').hexdigest()}
    changed = properties.replace("s3.bucket = payloads\n", access).replace("s3://payloads/", f"s3://{bucket}/")
    (tmp_path / "client.properties").write_text(changed)
    s3_server.client().put_object(Bucket=bucket, Key="2f1d", Body=gzip.compress(b"old" * 1000))
    document = {"s3_bucket": bucket, "s3_key": "2f1d", "sha256": "00", "compression": "gzip", "etag": "1"}
    program = f"""
import sys; sys.path.insert(0, ".")
from serde_chain import DeserializerChain, RecordContext
with DeserializerChain.from_config("client.properties") as read:
    for data in ({json.dumps(document)!r}.encode(), b'{{"plain": 1}}', b"bytes"):
        print(read(data, RecordContext("t", "value", []))[:12])
"""
    environment = installed(install_line(page))
    printed = environment.run(program, tmp_path)
    assert printed.splitlines() == [str(b"oldoldoldold"), str(b'{"plain": 1}'), str(b"bytes")]
    program = f"""
from serde_chain import DeserializerChain, RecordContext
with DeserializerChain.from_config("foreign.properties") as read:
    print(read({json.dumps(envelope)!r}.encode(), RecordContext("t", "value", [])))
"""
    assert environment.run(program, tmp_path) == "{'flux': 1}\n"
    topics = {name: f"{name}-{tmp_path.name}" for name in ("envelopes", "images")}
    for topic in topics.values():
        broker.create_topic(topic)
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topics["envelopes"], json.dumps(envelope))
    assert producer.flush(30) == 0
    told = [
        environment.serde_chain(*(topics.get(word, word) for word in command.split()), folder=tmp_path)
        for command in re.findall(r"^\$ serde-chain (.* envelopes.*)$", page, re.MULTILINE)
    ]
    assert "kafscale" in told[0]
    assert told[1:] == ["1 reference, 0 problems\n", "1 record copied, 1 payload moved\n"]
    both_ways = changed.replace("kip1159, s3_documents.S3_DOCUMENTS", "both_ways.BOTH_WAYS")
    (tmp_path / "both.properties").write_text(both_ways + "large.message.format = both_ways.BOTH_WAYS\n")
    program = """
import sys; sys.path.insert(0, ".")
from serde_chain import DeserializerChain, RecordContext, SerializerChain
ctx = RecordContext("t", "value", [])
with SerializerChain.from_config("both.properties") as write, DeserializerChain.from_config("both.properties") as read:
    data = write(b"new" * 1_000_000, ctx)
    print(data.decode())
    print(read(data, ctx) == b"new" * 1_000_000)
"""
    written, read = environment.run(program, tmp_path).splitlines()
    document = json.loads(written)
    assert read == "True"
    stored = s3_server.client().get_object(Bucket=document["s3_bucket"], Key=document["s3_key"])["Body"].read()
    assert stored == b"new" * 1_000_000
    assert document["sha256"] == hashlib.sha256(stored).hexdigest()


def test_tutorial(installed: Installed, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """A page from its beginning to its end, in an environment of its own."""
    page = PAGES["tutorial.md"]
    files = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", page, re.DOTALL))
    (files["alert.avsc"],) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert "serde-chain services alerts\n" in page  # the tests have a broker
    for name, text in files.items():
        (tmp_path / name).write_text(substituted(text, broker, tmp_path).replace('"alerts"', f'"{topic}"'))
    environment = installed(install_line(page))
    told = dict(re.findall(r"\$ python (\w+\.py)\n((?:[^$`].*\n)*)", page))
    assert set(told) == {"write.py", "read.py", "ask.py"}
    environment.serde_chain("check-config", "alerts.toml", folder=tmp_path)
    for name, expected in told.items():
        printed = environment.run((tmp_path / name).read_text(), tmp_path)
        assert printed.strip().startswith(expected.partition("…")[0].strip())
    shown = environment.serde_chain("inspect", "alerts.toml", topic, "--count", "2", folder=tmp_path)
    assert "a reference (kip1159)" in shown
    assert len(list((tmp_path / "payloads" / topic).iterdir())) == 4


def test_authors(installed: Installed, tmp_path: Path) -> None:
    """Conformance suites of seven stages and stores, and a client, run in a process."""
    text = PAGES["authors.md"] + PAGES["custom-stores.md"]
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL)
    order = ("reverse", "mask", "seconds", "ticket", "lookahead", "shelf", "attic", "timed", "link")
    names = [f"{test}{name}.py" for name in order for test in ("", "test_")]
    assert [name for name, _ in files] == names
    for name, code in files:
        (tmp_path / name).write_text(code, encoding="utf-8")
    installed(install_line(PAGES["authors.md"])).pytest(tmp_path)


@pytest.mark.parametrize(
    ("call", "missing", "extras"),
    [
        ("alerts.run_demo(None, 1)", "fastavro", "services,avro,compression"),
        ("hop.run_hop_demo(None)", "orjson", "services,json"),
    ],
)
def test_a_demo_names_all_that_it_needs_before_it_starts(
    call: str, missing: str, extras: str, installed: Installed, tmp_path: Path
) -> None:
    program = f"""
from payload_stores import MissingDependencyError
from serde_chain.cli.demo import alerts, hop
try:
    {call}
except MissingDependencyError as error:
    print(error)
"""
    told = installed("serde-chain[cli,services]").run(program, tmp_path)
    assert told == f"{missing} is not installed. pip install 'serde-chain[{extras}]'\n"


# Extras

ROUND_TRIP = """
from serde_chain import DeserializerChain, RecordContext, SerializerChain
for config, data in {cases}:
    write, read = SerializerChain.from_config(config), DeserializerChain.from_config(config)
    ctx = RecordContext("topic", "value", [])
    assert read(write(data, ctx), ctx) == data
    write.close(), read.close()
"""
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'


def stages(*names: str, data: object = b"data", **config: object) -> str:
    cases = [({"value.serializer": name, "value.deserializer": name, **config}, data) for name in names]
    return ROUND_TRIP.format(cases=cases)


def opening(store: str, **config: object) -> str:
    return f"from payload_stores import open_store\nopen_store({store!r}, {config!r}).close()"


EXTRAS = {
    "kafka": "from serde_chain import Producer\nProducer({'bootstrap.servers': '127.0.0.1:1', 'log_level': 0}).close()",
    "registry": "from confluent_kafka.schema_registry import SchemaRegistryClient\n"
    "SchemaRegistryClient.new_client({'url': 'mock://extras'})",
    "avro": stages("avro", data={"id": 1}, **{"avro.schema": SCHEMA}),
    "protobuf": "from google.protobuf.wrappers_pb2 import StringValue as Message\n"
    "from serde_chain import SerializerChain\n"
    "SerializerChain.from_config({'value.serializer': 'protobuf', 'protobuf.message.class': Message})(Message())",
    "json": stages("json", data={"id": 1}, **{"json.schema": '{"type": "object"}'}),
    "models": "from dataclasses import make_dataclass\nfrom serde_chain.stages.json.models import json_model\n"
    "assert json_model(make_dataclass('Image', [('id', int)])).read(b'{\"id\":1}').id == 1",
    "bson": stages("bson", data={"id": 1}),
    "msgpack": stages("msgpack", data={"id": 1}),
    "numpy": "import numpy as np\nfrom serde_chain import SerializerChain\n"
    "for stage, value in (('npy', np.ones(1)), ('safetensors', {'a': np.ones(1)})):\n"
    "    SerializerChain.from_config({'value.serializer': stage})(value)",
    "compression": stages("zstd", "lz4", "gzip", "snappy", "zlib"),
    "encryption": stages("encrypt", **{"encryption.keys": {"k": bytes(32)}}),
    "arrow": "from serde_chain import DeserializerChain\n"
    "DeserializerChain.from_config({'value.deserializer': 'string'}).to_arrow([b'a'], topic='t')\n",
    "bakdata": stages(
        "large-message",
        **{
            "large.message.payload.store.class": "memory",
            "large.message.format": "bakdata-flag",
            "large.message.accept": "bakdata-flag",
            "large.message.id": "murmur3",
        },
    ),
    "s3": opening("s3", **{"s3.bucket": "bucket"}),
    "glue": "from serde_chain.schemas.schema_registry import open_registry\n"
    "open_registry({'schema.registry.type': 'glue', 'glue.region': 'eu-west-1'}, is_key=False).close()",
    "objects": opening("objects", **{"objects.url": "s3://bucket/"}),
    "hop": opening("hop", **{"hop.offload.url": "http://127.0.0.1:1", "hop.username": "u", "hop.password": "p"}),
    "offload-server": "import payload_stores.offload_server, payload_stores.offload_server.runner\n"
    "import serde_chain.cli.commands",
    "spark": "import serde_chain.spark",
    "spark-worker": "import serde_chain.arrow, pyarrow",
    "config": "from serde_chain import config\nfrom pathlib import Path\n"
    "Path('a.properties').write_text('a = b')\nassert config.load('a.properties') == {'a': 'b'}",
    "cli": "import serde_chain.cli.commands",
    "browse": "import uvicorn, serde_chain.cli.browse.guard\nfrom serde_chain.cli.browse.app import Pages\n"
    "pages = Pages({'bootstrap.servers': '127.0.0.1:1', 'log_level': 0})\n"
    "assert pages._templates.get_template('list.html')\npages.close()",
    "faststream": "from serde_chain.clients.faststream import KafkaBroker",
    "kafka-python": "from serde_chain.clients.kafka_python import Deserializer, Serializer",
    "aiokafka": "from serde_chain.clients.aiokafka import Consumer, Producer",
    "otel": "import opentelemetry.trace, opentelemetry.metrics, serde_chain.telemetry as telemetry\n"
    "assert telemetry.client_telemetry().is_on",
    "retry": "from payload_stores import open_store\nfrom payload_stores.middleware import Retry\n"
    "Retry(open_store('memory', {}))",
    "testing": "import pytest\nfrom serde_chain.testing import SerializerTests\n"
    "from payload_stores.testing import PayloadStoreTests",
    "services": "from serde_chain.testing.services import S3Server\nwith S3Server() as s3: s3.create_bucket()\n"
    "from serde_chain.testing.services import KafkaBroker, OffloadServer, SchemaRegistry, spark_session",
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_its_part_needs(extra: str, installed: Installed, tmp_path: Path) -> None:
    installed(f"serde-chain[{extra}]").run(EXTRAS[extra], tmp_path)
