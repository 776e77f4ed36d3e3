//! Pairs of schemas, as `serde_chain.stages.avro.resolution` rewrites them for Arrow, compiled into plans.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::layout::Layout;
use crate::plan::{Constant, Plan, Step};
use crate::schema::{is_promotion, refused, size_of};

const MOST_LEVELS: usize = 150;
/// The attribute of a type with values that are not read: the smallest and the largest number, or none for UUIDs.
const LIMITS: &str = "serde-chain-limits";

/// Compile a pair of schemas, with at most so many types.
pub fn plan_of(writer: &Bound<'_, PyAny>, reader: &Bound<'_, PyAny>, layout: &Layout, most: usize) -> PyResult<Plan> {
    Compiler { named: [Vec::new(), Vec::new()], left: most }.plan(writer, reader, layout, 0)
}

struct Compiler<'py> {
    named: [Vec<(String, Bound<'py, PyAny>)>; 2],
    /// Types used twice are compiled twice.
    left: usize,
}

const WRITER: usize = 0;
const READER: usize = 1;

impl<'py> Compiler<'py> {
    /// The definition of a reference, which follows the definition.
    fn definition(&mut self, schema: &Bound<'py, PyAny>, side: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(name) = schema.cast::<PyString>() {
            let name = name.to_cow()?;
            let known = self.named[side].iter().rev().find(|(other, _)| *other == name);
            return Ok(known.map_or_else(|| schema.clone(), |(_, definition)| definition.clone()));
        }
        if let Ok(dict) = schema.cast::<PyDict>()
            && let Some(name) = dict.get_item("name")?
        {
            self.named[side].push((name.extract()?, schema.clone()));
        }
        Ok(schema.clone())
    }

    fn plan(
        &mut self,
        writer: &Bound<'py, PyAny>,
        reader: &Bound<'py, PyAny>,
        to: &Layout,
        level: usize,
    ) -> PyResult<Plan> {
        self.left = self.left.checked_sub(1).ok_or_else(|| PyValueError::new_err("it has too many fields"))?;
        if level > MOST_LEVELS {
            return refused("it nests too deeply, or is recursive");
        }
        let (writer, reader) = (self.definition(writer, WRITER)?, self.definition(reader, READER)?);
        if let Ok(branches) = writer.cast::<PyList>() {
            return self.union(branches, &reader, to, level);
        }
        let (which, other) = (kind(&writer)?, kind(&reader)?);
        // Types that resolve have the same name: the rewritten schemas say which do.
        if name_of(&writer)? != name_of(&reader)? {
            return refused("two types of different names do not match");
        }
        let target = reader.cast::<PyDict>().ok();
        let logical = match target {
            Some(dict) => dict.get_item("logicalType")?.map(|name| name.extract::<String>()).transpose()?,
            None => None,
        };
        Ok(match (which.as_str(), other.as_str(), to) {
            ("null", "null", _) => Plan::Null,
            ("boolean", "boolean", Layout::Bool) => Plan::Boolean,
            ("int", "int", Layout::I32 | Layout::I64)
            | ("int", "long", Layout::I64)
            | ("int", "float", Layout::F32)
            | ("int", "double", Layout::F64) => {
                let (least, most) = limits_of(target)?.unwrap_or((i64::MIN, i64::MAX));
                let bound = |limit: i64| limit.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                Plan::Int(bound(least), bound(most))
            }
            ("long", "long", Layout::I64) | ("long", "float", Layout::F32) | ("long", "double", Layout::F64) => {
                let (least, most) = limits_of(target)?.unwrap_or((i64::MIN, i64::MAX));
                Plan::Long(least, most)
            }
            ("int" | "long", "long", Layout::Millis) => {
                let (least, most) = limits_of(target)?.unwrap_or((i64::MIN, i64::MAX));
                Plan::Millis(least, most)
            }
            ("float", "float", Layout::F32 | Layout::F64) | ("float", "double", Layout::F64) => Plan::Float,
            ("double", "double", Layout::F64) => Plan::Double,
            ("bytes", "bytes", Layout::I128(_)) | ("fixed", "fixed", Layout::I128(_)) => {
                let (Some(dict), Some("decimal")) = (target, logical.as_deref()) else {
                    return refused("a decimal is not one");
                };
                let size = if which == "fixed" { Some(size_of(writer.cast()?, dict)?) } else { None };
                Plan::Decimal(size, item(dict, "precision")?.extract()?)
            }
            ("bytes", "bytes", Layout::Binary) if logical.is_none() => Plan::Bytes,
            ("string" | "bytes", "string", Layout::String) => match target {
                Some(dict) if dict.contains(LIMITS)? => Plan::Uuid,
                _ => Plan::String,
            },
            ("string", "bytes", Layout::Binary) if logical.is_none() => Plan::String,
            ("fixed", "fixed", Layout::Binary) if logical.is_none() => {
                Plan::Fixed(size_of(writer.cast()?, reader.cast()?)?)
            }
            ("enum", "enum", Layout::String) => Plan::Enum(symbols(writer.cast()?, reader.cast()?)?),
            ("array", "array", Layout::List(inner)) => {
                let (own, its) = (item(writer.cast()?, "items")?, item(reader.cast()?, "items")?);
                Plan::Array(Box::new(self.plan(&own, &its, inner, level + 1)?))
            }
            ("map", "map", Layout::Map(inner)) => {
                let (own, its) = (item(writer.cast()?, "values")?, item(reader.cast()?, "values")?);
                Plan::Map(Box::new(self.plan(&own, &its, inner, level + 1)?))
            }
            ("record", "record", Layout::Struct(fields)) => {
                self.record(writer.cast()?, reader.cast()?, fields, level)?
            }
            _ => return refused("a type is not supported"),
        })
    }

    fn union(
        &mut self,
        branches: &Bound<'py, PyList>,
        reader: &Bound<'py, PyAny>,
        to: &Layout,
        level: usize,
    ) -> PyResult<Plan> {
        let readers: Vec<_> = match reader.cast::<PyList>() {
            Ok(list) => list.iter().collect(),
            Err(_) => vec![reader.clone()],
        };
        let mut plans = Vec::with_capacity(branches.len());
        for branch in branches {
            let definition = self.definition(&branch, WRITER)?;
            plans.push(match self.matching(&definition, &readers)? {
                Some(other) => self.plan(&definition, &other, to, level + 1)?,
                None => Plan::Unresolved,
            });
        }
        Ok(Plan::Union(plans))
    }

    /// The only branch of the reader for one of the writer: of the same type and name, else by promotion.
    fn matching(
        &mut self,
        branch: &Bound<'py, PyAny>,
        readers: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (which, own) = (kind(branch)?, name_of(branch)?);
        let mut matching: Vec<Bound<'py, PyAny>> = Vec::new();
        let mut promoted = Vec::new();
        for reader in readers {
            let definition = self.definition(reader, READER)?;
            let other = kind(&definition)?;
            if other == which && name_of(&definition)? == own {
                matching.push(definition);
            } else if is_promotion(&which, &other) {
                promoted.push(definition);
            }
        }
        let mut candidates = if matching.is_empty() { promoted } else { matching };
        match candidates.len() {
            0 => Ok(None),
            1 => Ok(candidates.pop()),
            _ => refused("a branch of a union matches several"),
        }
    }

    fn record(
        &mut self,
        writer: &Bound<'py, PyDict>,
        reader: &Bound<'py, PyDict>,
        fields: &[(String, Layout)],
        level: usize,
    ) -> PyResult<Plan> {
        let targets = fields_of(reader)?;
        let mut steps = Vec::new();
        let mut absent: Vec<Option<Constant>> = fields.iter().map(|_| Some(Constant::Null)).collect();
        for (name, own) in fields_of(writer)? {
            let target = targets.iter().find(|(other, _)| *other == name);
            steps.push(match target {
                Some((_, field)) => {
                    let at = place(fields, &name)?;
                    if absent[at].take().is_none() {
                        return refused("a field occurs twice");
                    }
                    let (own, its) = (item(&own, "type")?, item(field, "type")?);
                    Step::Into(at, self.plan(&own, &its, &fields[at].1, level + 1)?)
                }
                None => Step::Skip(self.skipped(&item(&own, "type")?, level + 1)?),
            });
        }
        for (name, field) in &targets {
            let at = place(fields, name)?;
            if absent[at].is_some() {
                let Some(default) = field.get_item("default")? else { return refused("a field has no default") };
                absent[at] = Some(Constant::of(&default, &fields[at].1)?);
            }
        }
        let absent = absent.into_iter().enumerate().filter_map(|(at, constant)| Some((at, constant?))).collect();
        Ok(Plan::Record(steps, absent))
    }

    /// A type that is read and discarded.
    fn skipped(&mut self, schema: &Bound<'py, PyAny>, level: usize) -> PyResult<Plan> {
        self.left = self.left.checked_sub(1).ok_or_else(|| PyValueError::new_err("it has too many fields"))?;
        if level > MOST_LEVELS {
            return refused("it nests too deeply, or is recursive");
        }
        let schema = self.definition(schema, WRITER)?;
        if let Ok(branches) = schema.cast::<PyList>() {
            let plans: PyResult<Vec<_>> = branches.iter().map(|branch| self.skipped(&branch, level + 1)).collect();
            return Ok(Plan::Union(plans?));
        }
        Ok(match kind(&schema)?.as_str() {
            "null" => Plan::Null,
            "boolean" => Plan::Boolean,
            "int" | "long" => Plan::Long(i64::MIN, i64::MAX),
            "float" => Plan::Float,
            "double" => Plan::Double,
            "bytes" => Plan::Bytes,
            "string" => Plan::String,
            "fixed" => Plan::Fixed(item(schema.cast()?, "size")?.extract()?),
            "enum" => Plan::Enum(symbols(schema.cast()?, schema.cast()?)?),
            "array" => Plan::Array(Box::new(self.skipped(&item(schema.cast()?, "items")?, level + 1)?)),
            "map" => Plan::Map(Box::new(self.skipped(&item(schema.cast()?, "values")?, level + 1)?)),
            "record" => {
                let mut steps = Vec::new();
                for (_, field) in fields_of(schema.cast()?)? {
                    steps.push(Step::Skip(self.skipped(&item(&field, "type")?, level + 1)?));
                }
                Plan::Record(steps, Vec::new())
            }
            _ => return refused("a type is not supported"),
        })
    }
}

fn place(fields: &[(String, Layout)], name: &str) -> PyResult<usize> {
    let mut places = fields.iter().enumerate().filter(|(_, (other, _))| other == name).map(|(at, _)| at);
    match (places.next(), places.next()) {
        (Some(at), None) => Ok(at),
        _ => refused("a field is not in the type, or twice"),
    }
}

/// The smallest and the largest number of a type that are read; None for any.
fn limits_of(schema: Option<&Bound<'_, PyDict>>) -> PyResult<Option<(i64, i64)>> {
    match schema.map(|dict| dict.get_item(LIMITS)).transpose()?.flatten() {
        Some(limits) => limits.extract::<[i64; 2]>().map(|[least, most]| Some((least, most))),
        None => Ok(None),
    }
}

fn item<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    dict.get_item(key)?.ok_or_else(|| PyValueError::new_err("a definition is incomplete"))
}

fn kind(schema: &Bound<'_, PyAny>) -> PyResult<String> {
    if schema.is_instance_of::<PyList>() {
        return Ok("union".to_owned());
    }
    match schema.cast::<PyDict>() {
        Ok(dict) => item(dict, "type")?.extract(),
        Err(_) => schema.extract(),
    }
}

fn name_of(schema: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match schema.cast::<PyDict>() {
        Ok(dict) => dict.get_item("name")?.map(|name| name.extract()).transpose(),
        Err(_) => Ok(None),
    }
}

fn fields_of<'py>(record: &Bound<'py, PyDict>) -> PyResult<Vec<(String, Bound<'py, PyDict>)>> {
    let mut fields = Vec::new();
    for field in item(record, "fields")?.cast::<PyList>()? {
        let field = field.cast_into::<PyDict>()?;
        fields.push((item(&field, "name")?.extract()?, field));
    }
    Ok(fields)
}

/// The text of each symbol of the writer; None for those that the reader lacks, without a default.
fn symbols(writer: &Bound<'_, PyDict>, reader: &Bound<'_, PyDict>) -> PyResult<Vec<Option<Box<[u8]>>>> {
    let known: Vec<String> = item(reader, "symbols")?.extract()?;
    let default: Option<String> = reader.get_item("default")?.map(|default| default.extract()).transpose()?;
    let written: Vec<String> = item(writer, "symbols")?.extract()?;
    Ok(written
        .into_iter()
        .map(|symbol| if known.contains(&symbol) { Some(symbol) } else { default.clone().filter(|it| !it.is_empty()) })
        .map(|symbol| symbol.map(|text| text.into_bytes().into()))
        .collect())
}
