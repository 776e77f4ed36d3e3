//! Schemas in fastavro's parsed form, compiled into a table of types that refer to each other by index.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// Types nest at most 120 levels deep in serde-chain; the code that reads and writes them recurses once per level.
const MOST_LEVELS: usize = 150;

pub type Id = usize;

pub struct Schema {
    pub types: Vec<Type>,
    pub root: Id,
}

pub struct Type {
    pub kind: Kind,
    pub logical: Option<Logical>,
}

/// A logical type: the key under which fastavro finds its function, and the schema that the function expects.
pub struct Logical {
    pub key: Py<PyString>,
    pub schema: Py<PyAny>,
}

pub enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    /// An `int` or `long`, read as a double.
    LongAsDouble,
    Bytes,
    /// Read as bytes.
    StringAsBytes,
    String,
    Fixed(usize),
    Enum(Enum),
    Array(Id),
    Map(Id),
    Union(Vec<Id>),
    Record(Record),
    /// A branch that the reader's schema lacks.
    Unresolved,
}

pub struct Enum {
    /// None if the reader's schema lacks it, without a default.
    pub symbols: Vec<Option<Py<PyAny>>>,
    pub indexes: Py<PyDict>,
}

pub struct Record {
    pub fields: Vec<Field>,
    /// A dictionary with all keys, and the defaults of the reader's fields; its copies need not grow.
    pub template: Py<PyDict>,
}

pub struct Field {
    /// None for a field that is skipped.
    pub name: Option<Py<PyString>>,
    pub kind: Id,
    /// The value of a missing field: its default, or None if it may be null.
    pub default: Option<Py<PyAny>>,
}

impl Schema {
    /// Compile a schema.
    ///
    /// Fails with ValueError for a schema that is left to fastavro: recursive, malformed, or ambiguous when written.
    pub fn compile(parsed: &Bound<'_, PyAny>, writing: bool) -> PyResult<Self> {
        Self::compiled(parsed, None, if writing { Purpose::Write } else { Purpose::Read })
    }

    /// Compile a schema of records whose levels are counted: it may be recursive.
    pub fn compile_deep(parsed: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::compiled(parsed, None, Purpose::ReadDeep)
    }

    /// Compile a schema of columns to write: their types tell the branches of unions apart.
    ///
    /// Args: the schema, and fastavro's functions of the logical types that it knows.
    pub fn compile_columns(parsed: &Bound<'_, PyAny>, known: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut schema = Self::compiled(parsed, None, Purpose::WriteColumns)?;
        for each in &mut schema.types {
            if let Some(logical) = &each.logical
                && !known.contains(&logical.key)?
            {
                each.logical = None;
            }
        }
        Ok(schema)
    }

    /// Compile a writer's schema and a reader's, rewritten so that each type has one match at most.
    pub fn resolve(writer: &Bound<'_, PyAny>, reader: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::compiled(writer, Some(reader), Purpose::Read)
    }

    fn compiled<'py>(
        parsed: &Bound<'py, PyAny>,
        reader: Option<&Bound<'py, PyAny>>,
        purpose: Purpose,
    ) -> PyResult<Self> {
        let mut compiler = Compiler {
            types: Vec::new(),
            named: HashMap::new(),
            definitions: HashMap::new(),
            of_reader: HashMap::new(),
            purpose,
        };
        let root = match reader {
            Some(reader) => compiler.pair(parsed, reader, 0)?,
            None => compiler.compile(parsed, 0)?,
        };
        Ok(Self { types: compiler.types, root })
    }

    /// The schema `"string"`.
    pub fn text() -> Self {
        Self { types: vec![Type { kind: Kind::String, logical: None }], root: 0 }
    }

    #[inline]
    pub fn get(&self, id: Id) -> &Type {
        &self.types[id]
    }
}

struct Compiler<'py> {
    types: Vec<Type>,
    /// None for a type within its own definition.
    named: HashMap<String, Option<Id>>,
    definitions: HashMap<String, Bound<'py, PyAny>>,
    of_reader: HashMap<String, Bound<'py, PyAny>>,
    purpose: Purpose,
}

/// What a schema is compiled for.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    Read,
    /// The levels are counted: it may be recursive.
    ReadDeep,
    Write,
    WriteColumns,
}

impl Purpose {
    fn writes(self) -> bool {
        matches!(self, Purpose::Write | Purpose::WriteColumns)
    }
}

pub fn refused<T>(why: &str) -> PyResult<T> {
    Err(PyValueError::new_err(why.to_owned()))
}

impl<'py> Compiler<'py> {
    fn add(&mut self, kind: Kind, logical: Option<Logical>) -> Id {
        self.types.push(Type { kind, logical });
        self.types.len() - 1
    }

    fn compile(&mut self, schema: &Bound<'py, PyAny>, level: usize) -> PyResult<Id> {
        if level > MOST_LEVELS {
            return refused("it nests too deeply");
        }
        if let Ok(name) = schema.cast::<PyString>() {
            return self.by_name(&name.to_cow()?, level);
        }
        if let Ok(branches) = schema.cast::<PyList>() {
            return self.union(branches, level);
        }
        let Ok(dict) = schema.cast::<PyDict>() else {
            return refused("a part of it is neither a name, a list nor an object");
        };
        if let Some(named) = dict.get_item("__named_schemas")? {
            for (name, definition) in named.cast::<PyDict>()? {
                self.definitions.entry(name.extract()?).or_insert(definition);
            }
        }
        let Ok(kind) = required(dict, "type")?.cast_into::<PyString>() else {
            return refused("a type is defined by another definition");
        };
        let kind = kind.to_cow()?.into_owned();
        let logical = logical_of(schema, &kind)?;
        let compiled = match kind.as_str() {
            "array" => Kind::Array(self.compile(&required(dict, "items")?, level + 1)?),
            "map" => Kind::Map(self.compile(&required(dict, "values")?, level + 1)?),
            "fixed" | "enum" | "record" | "error" => return self.definition(dict, &kind, logical, level),
            name => match primitive(name) {
                Some(kind) => kind,
                None if logical.is_none() => return self.by_name(name, level),
                None => return refused("a reference has a logical type"),
            },
        };
        Ok(self.add(compiled, logical))
    }

    fn by_name(&mut self, name: &str, level: usize) -> PyResult<Id> {
        if let Some(kind) = primitive(name) {
            return Ok(self.add(kind, None));
        }
        match self.named.get(name) {
            Some(Some(id)) => Ok(*id),
            Some(None) => refused("it is recursive"),
            None => match self.definitions.get(name).cloned() {
                Some(definition) => self.compile(&definition, level + 1),
                None => refused("a type is not defined"),
            },
        }
    }

    fn definition(
        &mut self,
        dict: &Bound<'py, PyDict>,
        kind: &str,
        logical: Option<Logical>,
        level: usize,
    ) -> PyResult<Id> {
        let name: String = required(dict, "name")?.extract()?;
        match self.named.get(&name) {
            Some(Some(id)) => return Ok(*id),
            Some(None) => return refused("it is recursive"),
            None => {}
        };
        let id = self.add(Kind::Null, logical); // replaced below
        self.named.insert(name.clone(), (self.purpose == Purpose::ReadDeep).then_some(id));
        self.types[id].kind = match kind {
            "fixed" => Kind::Fixed(required(dict, "size")?.extract()?),
            "enum" => Kind::Enum(enum_of(dict)?),
            _ => Kind::Record(self.record(dict, level)?),
        };
        self.named.insert(name, Some(id));
        Ok(id)
    }

    fn record(&mut self, dict: &Bound<'py, PyDict>, level: usize) -> PyResult<Record> {
        let py = dict.py();
        let template = PyDict::new(py);
        let mut fields = Vec::new();
        for field in required(dict, "fields")?.cast::<PyList>()? {
            let field = field.cast_into::<PyDict>()?;
            let name = PyString::intern(py, &required(&field, "name")?.cast::<PyString>()?.to_cow()?);
            let schema = required(&field, "type")?;
            let kind = self.compile(&schema, level + 1)?;
            template.set_item(&name, py.None())?;
            let default = match field.get_item("default")? {
                Some(default) => Some(default.unbind()),
                None if schema.eq("null")? || has_null(&schema)? => Some(py.None()),
                None => None,
            };
            fields.push(Field { name: Some(name.unbind()), kind, default });
        }
        // When read, the last one counts, as in fastavro.
        if self.purpose.writes() && template.len() != fields.len() {
            return refused("two fields have the same name");
        }
        Ok(Record { fields, template: template.unbind() })
    }

    fn union(&mut self, branches: &Bound<'py, PyList>, level: usize) -> PyResult<Id> {
        let mut ids = Vec::with_capacity(branches.len());
        for branch in branches {
            ids.push(self.compile(&branch, level + 1)?);
        }
        let is_odd = ids.is_empty() || ids.iter().any(|&id| matches!(self.types[id].kind, Kind::Union(_)));
        if self.purpose.writes() && is_odd {
            return refused("a union is empty, or a branch of another one");
        }
        if self.purpose == Purpose::Write && self.is_ambiguous(&ids) {
            return refused("a value may match several branches of a union");
        }
        Ok(self.add(Kind::Union(ids), None))
    }

    /// Whether more than one branch may match a value of one Python type, by the rules of fastavro's validation.
    fn is_ambiguous(&self, branches: &[Id]) -> bool {
        let mut seen = [0usize; 8];
        let mut logical = false;
        for &branch in branches {
            let Type { kind, logical: own } = &self.types[branch];
            logical |= own.is_some();
            let group = match kind {
                Kind::Null => 0,
                Kind::Boolean => 1,
                Kind::Int | Kind::Long => 2, // tried in order
                Kind::Float | Kind::Double | Kind::LongAsDouble => 3,
                Kind::String | Kind::Enum(_) => 4,
                // Bytes are a sequence of numbers, too.
                Kind::Bytes | Kind::StringAsBytes | Kind::Fixed(_) | Kind::Array(_) => 5,
                Kind::Map(_) | Kind::Record(_) => 6,
                Kind::Union(_) | Kind::Unresolved => 7,
            };
            seen[group] += 1;
        }
        let others = branches.len() - seen[0];
        (logical && others > 1) || seen.iter().enumerate().any(|(group, &count)| group != 2 && count > 1)
    }
}

/// Types of two schemas, as `serde_chain.stages.avro.resolution` rewrites them: those that match have the same name.
impl<'py> Compiler<'py> {
    fn pair(&mut self, writer: &Bound<'py, PyAny>, reader: &Bound<'py, PyAny>, level: usize) -> PyResult<Id> {
        if level > MOST_LEVELS {
            return refused("it nests too deeply");
        }
        let (writer, reader) = (defined(writer, &mut self.definitions)?, defined(reader, &mut self.of_reader)?);
        if let Ok(branches) = writer.cast::<PyList>() {
            let mut ids = Vec::with_capacity(branches.len());
            for branch in branches {
                let branch = defined(&branch, &mut self.definitions)?;
                ids.push(match self.matching(&branch, &reader)? {
                    Some(other) => self.pair(&branch, &other, level + 1)?,
                    None => self.add(Kind::Unresolved, None),
                });
            }
            return Ok(self.add(Kind::Union(ids), None));
        }
        if reader.is_instance_of::<PyList>() {
            return match self.matching(&writer, &reader)? {
                Some(other) => self.pair(&writer, &other, level + 1),
                None => refused("a type has no match"),
            };
        }
        let (which, other) = (kind_of(&writer)?, kind_of(&reader)?);
        let logical = logical_of(&writer, &which)?;
        if let Some(logical) = &logical
            && !is_known(&logical.key.bind(writer.py()).to_cow()?)
        {
            return refused("a logical type may depend on both schemas");
        }
        let name = name_of(&writer)?;
        // Types that resolve have the same name: the rewritten schemas say which do.
        if name != name_of(&reader)? {
            return refused("two types of different names do not match");
        }
        if let Some(name) = &name {
            match self.named.get(name) {
                Some(Some(id)) => return Ok(*id),
                Some(None) => return refused("it is recursive"),
                None => self.named.insert(name.clone(), None),
            };
        }
        let kind = match (which.as_str(), other.as_str()) {
            ("array", "array") => Kind::Array(self.inner(&writer, &reader, "items", level)?),
            ("map", "map") => Kind::Map(self.inner(&writer, &reader, "values", level)?),
            ("record", "record") => Kind::Record(self.record_pair(writer.cast()?, reader.cast()?, level)?),
            ("enum", "enum") => Kind::Enum(enum_pair(writer.cast()?, reader.cast()?)?),
            ("fixed", "fixed") => Kind::Fixed(size_of(writer.cast()?, reader.cast()?)?),
            (which, other) => match primitive(which) {
                // A function of ours promotes.
                Some(kind) if which == other || logical.is_some() => kind,
                Some(kind) => match (which, other) {
                    ("int", "long") | ("float", "double") => kind,
                    ("int" | "long", "double") => Kind::LongAsDouble,
                    ("string", "bytes") => Kind::StringAsBytes,
                    ("bytes", "string") => Kind::String,
                    _ => return refused("two types do not match"),
                },
                None => return refused("a type is not supported"),
            },
        };
        let id = self.add(kind, logical);
        if let Some(name) = name {
            self.named.insert(name, Some(id));
        }
        Ok(id)
    }

    fn inner(
        &mut self,
        writer: &Bound<'py, PyAny>,
        reader: &Bound<'py, PyAny>,
        key: &str,
        level: usize,
    ) -> PyResult<Id> {
        self.pair(&required(writer.cast()?, key)?, &required(reader.cast()?, key)?, level + 1)
    }

    /// The only branch of the reader for a type of the writer: of the same type and name, else by promotion.
    fn matching(
        &mut self,
        writer: &Bound<'py, PyAny>,
        reader: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let readers: Vec<_> = match reader.cast::<PyList>() {
            Ok(list) => list.iter().collect(),
            Err(_) => vec![reader.clone()],
        };
        let (which, name) = (kind_of(writer)?, name_of(writer)?);
        let (mut equal, mut promoted) = (Vec::new(), Vec::new());
        for reader in readers {
            let reader = defined(&reader, &mut self.of_reader)?;
            let other = kind_of(&reader)?;
            if other == which && name_of(&reader)? == name {
                equal.push(reader);
            } else if is_promotion(&which, &other) {
                promoted.push(reader);
            }
        }
        let mut found = if equal.is_empty() { promoted } else { equal };
        if found.len() > 1 {
            return refused("a type has several matches");
        }
        Ok(found.pop())
    }

    fn record_pair(
        &mut self,
        writer: &Bound<'py, PyDict>,
        reader: &Bound<'py, PyDict>,
        level: usize,
    ) -> PyResult<Record> {
        let py = writer.py();
        let mut targets = HashMap::new();
        let mut order = Vec::new();
        for field in required(reader, "fields")?.cast::<PyList>()? {
            let field = field.cast_into::<PyDict>()?;
            let name: String = required(&field, "name")?.extract()?;
            order.push(name.clone());
            targets.insert(name, field);
        }
        let template = PyDict::new(py);
        let mut fields = Vec::new();
        for field in required(writer, "fields")?.cast::<PyList>()? {
            let field = field.cast_into::<PyDict>()?;
            let name: String = required(&field, "name")?.extract()?;
            let schema = required(&field, "type")?;
            fields.push(match targets.remove(&name) {
                Some(target) => {
                    let kind = self.pair(&schema, &required(&target, "type")?, level + 1)?;
                    let name = PyString::intern(py, &name);
                    template.set_item(&name, py.None())?;
                    Field { name: Some(name.unbind()), kind, default: None }
                }
                None => Field { name: None, kind: self.compile(&schema, level + 1)?, default: None },
            });
        }
        for name in order {
            if let Some(field) = targets.remove(&name) {
                template.set_item(PyString::intern(py, &name), required(&field, "default")?)?;
            }
        }
        Ok(Record { fields, template: template.unbind() })
    }
}

/// A definition, which is noted, or the definition that a name refers to.
fn defined<'py>(
    schema: &Bound<'py, PyAny>,
    known: &mut HashMap<String, Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(name) = schema.cast::<PyString>() {
        return Ok(known.get(&*name.to_cow()?).unwrap_or(schema).clone());
    }
    if let Some(name) = name_of(schema)? {
        known.insert(name, schema.clone());
    }
    Ok(schema.clone())
}

fn kind_of(schema: &Bound<'_, PyAny>) -> PyResult<String> {
    match schema.cast::<PyDict>() {
        Ok(dict) => required(dict, "type")?.extract(),
        Err(_) => schema.extract(),
    }
}

fn name_of(schema: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match schema.cast::<PyDict>() {
        Ok(dict) => dict.get_item("name")?.map(|name| name.extract()).transpose(),
        Err(_) => Ok(None),
    }
}

fn logical_of(schema: &Bound<'_, PyAny>, kind: &str) -> PyResult<Option<Logical>> {
    let Ok(dict) = schema.cast::<PyDict>() else { return Ok(None) };
    match dict.get_item("logicalType")? {
        Some(logical) if logical.is_truthy()? => Ok(Some(Logical {
            key: PyString::intern(schema.py(), &format!("{kind}-{}", logical.str()?.to_cow()?)).unbind(),
            schema: schema.clone().unbind(),
        })),
        _ => Ok(None),
    }
}

/// Whether the function of a logical type looks at the writer's schema only.
fn is_known(key: &str) -> bool {
    let (_, logical) = key.split_once('-').unwrap_or_default();
    logical.starts_with("serde-chain-")
        || matches!(
            key,
            "int-date"
                | "int-time-millis"
                | "long-time-micros"
                | "long-timestamp-millis"
                | "long-timestamp-micros"
                | "long-local-timestamp-millis"
                | "long-local-timestamp-micros"
                | "string-uuid"
        )
}

/// Whether Avro promotes a type to another.
pub fn is_promotion(which: &str, other: &str) -> bool {
    matches!(
        (which, other),
        ("int", "long" | "float" | "double")
            | ("long", "float" | "double")
            | ("float", "double")
            | ("string", "bytes")
            | ("bytes", "string")
    )
}

fn enum_pair(writer: &Bound<'_, PyDict>, reader: &Bound<'_, PyDict>) -> PyResult<Enum> {
    let Enum { symbols, indexes } = enum_of(writer)?;
    let known = required(reader, "symbols")?;
    let default = match reader.get_item("default")? {
        Some(default) if default.is_truthy()? => Some(default.unbind()),
        _ => None,
    };
    let py = writer.py();
    let mut resolved = Vec::with_capacity(symbols.len());
    for symbol in symbols {
        let is_known = match &symbol {
            Some(symbol) => known.contains(symbol)?,
            None => false,
        };
        resolved.push(if is_known { symbol } else { default.as_ref().map(|default| default.clone_ref(py)) });
    }
    Ok(Enum { symbols: resolved, indexes })
}

/// Whether a field may be missing without a default: fastavro looks for the word itself.
fn has_null(schema: &Bound<'_, PyAny>) -> PyResult<bool> {
    match schema.cast::<PyList>() {
        Ok(branches) => branches.contains("null"),
        Err(_) => Ok(false),
    }
}

fn required<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    match dict.get_item(key)? {
        Some(value) => Ok(value),
        None => refused("a definition is incomplete"),
    }
}

/// The size of a fixed type; those of writer and reader must be equal.
pub fn size_of(writer: &Bound<'_, PyDict>, reader: &Bound<'_, PyDict>) -> PyResult<usize> {
    let size = required(writer, "size")?.extract()?;
    if required(reader, "size")?.extract::<usize>()? == size { Ok(size) } else { refused("two sizes are different") }
}

fn enum_of(dict: &Bound<'_, PyDict>) -> PyResult<Enum> {
    let indexes = PyDict::new(dict.py());
    let mut symbols = Vec::new();
    for symbol in required(dict, "symbols")?.cast::<PyList>()? {
        if !symbol.is_exact_instance_of::<PyString>() || indexes.contains(&symbol)? {
            return refused("a symbol is not a string, or occurs twice");
        }
        indexes.set_item(&symbol, symbols.len())?;
        symbols.push(Some(symbol.unbind()));
    }
    Ok(Enum { symbols, indexes: indexes.unbind() })
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}
