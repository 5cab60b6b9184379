//! JSON, XML and YAML: encoding and decoding, evolution, hostile input, comparison with other
//! libraries.

mod json_evolution;
mod json_golden;
mod json_hostile;
mod json_random;
mod json_support;
mod json_types;
mod text_golden;
mod text_support;
mod xml_hostile;
mod xml_values;
mod yaml_values;
