//! The compiled part of serde-chain: Avro records to and from Python objects, and into Arrow.
//!
//! It takes what is plain and leaves the rest to fastavro: errors, and the meaning of unusual bytes and values, are
//! therefore the same with and without it.

mod bounds;
mod builder;
mod column_decoder;
mod columns;
mod decode;
mod encode;
mod interface;
mod layout;
mod pairs;
mod plan;
mod pool;
mod schema;
mod validity;
mod wire;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Raised when the Python side would have to change: a build in place may be older than the modules beside it.
    module.add("INTERFACE", 3)?;
    module.add_class::<column_decoder::ColumnDecoder>()?;
    module.add_class::<columns::ColumnEncoder>()?;
    module.add_class::<decode::Decoder>()?;
    module.add_class::<encode::Encoder>()?;
    module.add_function(wrap_pyfunction!(pool::keep, module)?)
}
