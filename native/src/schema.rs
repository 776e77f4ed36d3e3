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
    Bytes,
    String,
    Fixed(usize),
    Enum(Enum),
    Array(Id),
    Map(Id),
    Union(Vec<Id>),
    Record(Record),
}

pub struct Enum {
    pub symbols: Vec<Py<PyAny>>,
    pub indexes: Py<PyDict>,
}

pub struct Record {
    pub fields: Vec<Field>,
    /// A dictionary with all keys; its copies need not grow.
    pub template: Py<PyDict>,
}

pub struct Field {
    pub name: Py<PyString>,
    pub kind: Id,
    /// The value of a missing field: its default, or None if it may be null.
    pub default: Option<Py<PyAny>>,
}

impl Schema {
    /// Compile a schema.
    ///
    /// Fails with ValueError for a schema that is left to fastavro: recursive, malformed, or ambiguous when written.
    pub fn compile(parsed: &Bound<'_, PyAny>, writing: bool) -> PyResult<Self> {
        let mut compiler = Compiler { types: Vec::new(), named: HashMap::new(), definitions: HashMap::new(), writing };
        let root = compiler.compile(parsed, 0)?;
        Ok(Self { types: compiler.types, root })
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
    writing: bool,
}

fn refused<T>(why: &str) -> PyResult<T> {
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
        let logical = match dict.get_item("logicalType")? {
            Some(logical) if logical.is_truthy()? => Some(Logical {
                key: PyString::intern(schema.py(), &format!("{kind}-{}", logical.str()?.to_cow()?)).unbind(),
                schema: schema.clone().unbind(),
            }),
            _ => None,
        };
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
            None => self.named.insert(name.clone(), None),
        };
        let compiled = match kind {
            "fixed" => Kind::Fixed(required(dict, "size")?.extract()?),
            "enum" => Kind::Enum(enum_of(dict)?),
            _ => Kind::Record(self.record(dict, level)?),
        };
        let id = self.add(compiled, logical);
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
            fields.push(Field { name: name.unbind(), kind, default });
        }
        if template.len() != fields.len() {
            return refused("two fields have the same name");
        }
        Ok(Record { fields, template: template.unbind() })
    }

    fn union(&mut self, branches: &Bound<'py, PyList>, level: usize) -> PyResult<Id> {
        let mut ids = Vec::with_capacity(branches.len());
        for branch in branches {
            ids.push(self.compile(&branch, level + 1)?);
        }
        if ids.is_empty() || ids.iter().any(|&id| matches!(self.types[id].kind, Kind::Union(_))) {
            return refused("a union is empty, or a branch of another one");
        }
        if self.writing && self.is_ambiguous(&ids) {
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
                Kind::Float | Kind::Double => 3,
                Kind::String | Kind::Enum(_) => 4,
                // Bytes are a sequence of numbers, too.
                Kind::Bytes | Kind::Fixed(_) | Kind::Array(_) => 5,
                Kind::Map(_) | Kind::Record(_) => 6,
                Kind::Union(_) => 7,
            };
            seen[group] += 1;
        }
        let others = branches.len() - seen[0];
        (logical && others > 1) || seen.iter().enumerate().any(|(group, &count)| group != 2 && count > 1)
    }
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

fn enum_of(dict: &Bound<'_, PyDict>) -> PyResult<Enum> {
    let indexes = PyDict::new(dict.py());
    let mut symbols = Vec::new();
    for symbol in required(dict, "symbols")?.cast::<PyList>()? {
        if !symbol.is_exact_instance_of::<PyString>() || indexes.contains(&symbol)? {
            return refused("a symbol is not a string, or occurs twice");
        }
        indexes.set_item(&symbol, symbols.len())?;
        symbols.push(symbol.unbind());
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
