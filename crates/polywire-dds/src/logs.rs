//! Cyclone's log, passed on to the crate `log`.

use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::Once,
};

use cyclors::{DDS_LC_ERROR, DDS_LC_FATAL, DDS_LC_WARNING, dds_log_data_t, dds_set_log_sink};

/// Passes on what Cyclone reports from now on, instead of printing it on standard error.
pub(crate) fn pass_on() {
    static ONCE: Once = Once::new();
    // SAFETY: the function needs no argument, and is there as long as the process.
    ONCE.call_once(|| unsafe { dds_set_log_sink(Some(line), ptr::null_mut()) });
}

unsafe extern "C" fn line(_: *mut c_void, data: *const dds_log_data_t) {
    // SAFETY: Cyclone passes a description that is valid during the call, with a text that ends
    // with a zero byte.
    let (priority, text) = unsafe {
        let data = &*data;
        if data.message.is_null() {
            return;
        }
        (data.priority, CStr::from_ptr(data.message).to_string_lossy())
    };
    let level = match priority {
        DDS_LC_FATAL | DDS_LC_ERROR => log::Level::Error,
        DDS_LC_WARNING => log::Level::Warn,
        _ => log::Level::Debug,
    };
    log::log!(target: "cyclonedds", level, "{}", text.trim_end());
}
