//! FAST: templates, messages byte for byte, message sequences, errors, machine code, another
//! library.

mod errors;
mod golden;
mod hostile;
mod learn;
mod machine;
mod oracle;
mod stream;
mod support;
mod template;
