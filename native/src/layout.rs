//! The layouts of Arrow types.

use pyo3::prelude::*;

use crate::schema::refused;

/// pyarrow imports types of at most 64 levels, and a map has two.
const MOST_LEVELS: usize = 60;

/// The layout of an Arrow type.
pub enum Layout {
    Null,
    Bool,
    I32,
    I64,
    /// Microseconds, of a schema that has milliseconds.
    Millis,
    F32,
    F64,
    /// Decimals of a scale.
    I128(i64),
    Binary,
    String,
    List(Box<Layout>),
    Map(Box<Layout>),
    Struct(Vec<(String, Layout)>),
}

impl Layout {
    /// The layout of a `pyarrow.DataType`; the second has timestamps in the schema's unit.
    pub fn of(kind: &Bound<'_, PyAny>, as_read: &Bound<'_, PyAny>, level: usize) -> PyResult<Self> {
        if level > MOST_LEVELS {
            return refused("the type nests too deeply");
        }
        let (text, read): (String, String) = (kind.str()?.extract()?, as_read.str()?.extract()?);
        let inner = |name: &str| -> PyResult<Box<Layout>> {
            Ok(Box::new(Layout::of(&kind.getattr(name)?, &as_read.getattr(name)?, level + 1)?))
        };
        Ok(match (text.as_str(), read.as_str()) {
            (text, _) if text.starts_with("list<") => Layout::List(inner("value_type")?),
            (text, _) if text.starts_with("map<string, ") => Layout::Map(Box::new(Layout::of(
                &kind.getattr("item_type")?,
                &as_read.getattr("item_type")?,
                level + 2,
            )?)),
            (text, _) if text.starts_with("struct<") => {
                let count: usize = kind.getattr("num_fields")?.extract()?;
                let mut fields = Vec::with_capacity(count);
                for at in 0..count {
                    let (field, other) = (kind.call_method1("field", (at,))?, as_read.call_method1("field", (at,))?);
                    let inner = Layout::of(&field.getattr("type")?, &other.getattr("type")?, level + 1)?;
                    fields.push((field.getattr("name")?.extract()?, inner));
                }
                Layout::Struct(fields)
            }
            ("timestamp[us]", "timestamp[ms]") | ("timestamp[us, tz=UTC]", "timestamp[ms, tz=UTC]") => Layout::Millis,
            (text, read) if text != read => return refused("the types differ"),
            ("null", _) => Layout::Null,
            ("bool", _) => Layout::Bool,
            ("int32" | "date32[day]", _) => Layout::I32,
            ("int64" | "timestamp[us]" | "timestamp[us, tz=UTC]", _) => Layout::I64,
            ("float", _) => Layout::F32,
            ("double", _) => Layout::F64,
            ("binary", _) => Layout::Binary,
            ("string", _) => Layout::String,
            (text, _) if text.starts_with("decimal128(") => Layout::I128(kind.getattr("scale")?.extract()?),
            _ => return refused("a type is not supported"),
        })
    }
}
