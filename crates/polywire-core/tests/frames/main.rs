//! Frames: all inputs, the examples of `spec/frame.md`, the Wireshark dissector.

mod inputs;
mod spec;
mod wireshark;
