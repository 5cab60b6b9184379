//! The part of libzmq's C interface (`zmq.h`) that this crate calls.

use std::ffi::{c_char, c_int, c_long, c_short, c_void};

unsafe extern "C" {
    pub(crate) fn zmq_errno() -> c_int;
    pub(crate) fn zmq_strerror(number: c_int) -> *const c_char;
    pub(crate) fn zmq_ctx_new() -> *mut c_void;
    pub(crate) fn zmq_ctx_set(context: *mut c_void, option: c_int, value: c_int) -> c_int;
    pub(crate) fn zmq_ctx_term(context: *mut c_void) -> c_int;
    pub(crate) fn zmq_socket(context: *mut c_void, kind: c_int) -> *mut c_void;
    pub(crate) fn zmq_close(socket: *mut c_void) -> c_int;
    pub(crate) fn zmq_bind(socket: *mut c_void, endpoint: *const c_char) -> c_int;
    pub(crate) fn zmq_connect(socket: *mut c_void, endpoint: *const c_char) -> c_int;
    pub(crate) fn zmq_setsockopt(socket: *mut c_void, option: c_int, value: *const c_void, size: usize) -> c_int;
    pub(crate) fn zmq_getsockopt(socket: *mut c_void, option: c_int, value: *mut c_void, size: *mut usize) -> c_int;
    pub(crate) fn zmq_socket_monitor(socket: *mut c_void, endpoint: *const c_char, events: c_int) -> c_int;
    pub(crate) fn zmq_send(socket: *mut c_void, bytes: *const c_void, size: usize, flags: c_int) -> c_int;
    pub(crate) fn zmq_msg_init(message: *mut MessageBytes) -> c_int;
    pub(crate) fn zmq_msg_close(message: *mut MessageBytes) -> c_int;
    pub(crate) fn zmq_msg_recv(message: *mut MessageBytes, socket: *mut c_void, flags: c_int) -> c_int;
    pub(crate) fn zmq_msg_data(message: *mut MessageBytes) -> *mut c_void;
    pub(crate) fn zmq_msg_size(message: *const MessageBytes) -> usize;
    pub(crate) fn zmq_msg_more(message: *const MessageBytes) -> c_int;
    pub(crate) fn zmq_poll(items: *mut PollItem, count: c_int, timeout_ms: c_long) -> c_int;
}

/// `zmq_msg_t`.
#[repr(C, align(8))]
pub(crate) struct MessageBytes(pub(crate) [u8; 64]);

/// `zmq_pollitem_t` of systems other than Windows.
#[repr(C)]
pub(crate) struct PollItem {
    pub(crate) socket: *mut c_void,
    pub(crate) fd: c_int,
    pub(crate) events: c_short,
    pub(crate) revents: c_short,
}

pub(crate) const POLLIN: c_short = 1;

pub(crate) const DONTWAIT: c_int = 1;
pub(crate) const SNDMORE: c_int = 2;

/// An option of contexts.
pub(crate) const MAX_SOCKETS: c_int = 2;

// Options of sockets.
pub(crate) const SUBSCRIBE: c_int = 6;
pub(crate) const UNSUBSCRIBE: c_int = 7;
pub(crate) const FD: c_int = 14;
pub(crate) const EVENTS: c_int = 15;
pub(crate) const LINGER: c_int = 17;
pub(crate) const RECONNECT_IVL: c_int = 18;
pub(crate) const RECONNECT_IVL_MAX: c_int = 21;
pub(crate) const MAXMSGSIZE: c_int = 22;
pub(crate) const SNDHWM: c_int = 23;
pub(crate) const RCVHWM: c_int = 24;
pub(crate) const RCVTIMEO: c_int = 27;
pub(crate) const SNDTIMEO: c_int = 28;
pub(crate) const LAST_ENDPOINT: c_int = 32;
pub(crate) const IPV6: c_int = 42;
pub(crate) const XPUB_NODROP: c_int = 69;
pub(crate) const HEARTBEAT_IVL: c_int = 75;

// Events that a monitor reports.
pub(crate) const HANDSHAKE_SUCCEEDED: c_int = 0x1000;
pub(crate) const DISCONNECTED: c_int = 0x0200;
