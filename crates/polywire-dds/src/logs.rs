//! Cyclone's log, passed on to the crate `log`.

use std::{
    cell::RefCell,
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

thread_local! {
    /// The errors that Cyclone has logged on this thread since [`watching`] began.
    static ERRORS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Calls a function. Returns its result and the errors that Cyclone logs during the call, because
/// the result has only a code.
pub(crate) fn watching<T>(call: impl FnOnce() -> T) -> (T, Vec<String>) {
    ERRORS.set(Some(Vec::new()));
    let returned = call();
    (returned, ERRORS.take().unwrap_or_default())
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
    if level == log::Level::Error {
        ERRORS.with_borrow_mut(|errors| errors.as_mut().map(|errors| errors.push(text.clone().into_owned())));
    }
    log::log!(target: "cyclonedds", level, "{}", text.trim_end());
}
