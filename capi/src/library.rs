//! The library itself: its version, and the sizes of its structures.

use std::ffi::{CStr, c_char};

/// The version of the ABI. The library's soname ends with it.
pub const SLIPGATE_ABI: u32 = 1;

/// `slipgate_event`, for `slipgate_size_of`, as are the following ones.
pub const SLIPGATE_STRUCT_EVENT: u32 = 1;
/// `slipgate_channel`
pub const SLIPGATE_STRUCT_CHANNEL: u32 = 2;
/// `slipgate_traffic`
pub const SLIPGATE_STRUCT_TRAFFIC: u32 = 3;
/// `slipgate_send_options`
pub const SLIPGATE_STRUCT_SEND_OPTIONS: u32 = 4;
/// `slipgate_path`
pub const SLIPGATE_STRUCT_PATH: u32 = 5;
/// `slipgate_budget`
pub const SLIPGATE_STRUCT_BUDGET: u32 = 6;
/// `slipgate_close_reason`
pub const SLIPGATE_STRUCT_CLOSE_REASON: u32 = 7;
/// `slipgate_server_config`
pub const SLIPGATE_STRUCT_SERVER_CONFIG: u32 = 8;
/// `slipgate_client_info`
pub const SLIPGATE_STRUCT_CLIENT_INFO: u32 = 9;
/// `slipgate_claims`
pub const SLIPGATE_STRUCT_CLAIMS: u32 = 10;
/// `slipgate_remaining`
pub const SLIPGATE_STRUCT_REMAINING: u32 = 11;
/// `slipgate_outgoing_message`
pub const SLIPGATE_STRUCT_OUTGOING_MESSAGE: u32 = 12;

/// Returns the version of the library's ABI. It must be `SLIPGATE_ABI` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_abi() -> u32 {
    SLIPGATE_ABI
}

/// Returns the version of the library, such as "0.1.0": a static string that ends with zero.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

/// Returns the size of a structure in bytes, 0 for an unknown one. Bindings of other languages compare it with theirs.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_size_of(structure: u32) -> u32 {
    let size = match structure {
        SLIPGATE_STRUCT_EVENT => size_of::<crate::CEvent>(),
        SLIPGATE_STRUCT_CHANNEL => size_of::<crate::CChannel>(),
        SLIPGATE_STRUCT_TRAFFIC => size_of::<crate::CTraffic>(),
        SLIPGATE_STRUCT_SEND_OPTIONS => size_of::<crate::CSendOptions>(),
        SLIPGATE_STRUCT_PATH => size_of::<crate::CPath>(),
        SLIPGATE_STRUCT_BUDGET => size_of::<crate::CBudget>(),
        SLIPGATE_STRUCT_CLOSE_REASON => size_of::<crate::CCloseReason>(),
        SLIPGATE_STRUCT_REMAINING => size_of::<crate::CRemaining>(),
        SLIPGATE_STRUCT_OUTGOING_MESSAGE => size_of::<crate::COutgoingMessage>(),
        #[cfg(feature = "server")]
        SLIPGATE_STRUCT_SERVER_CONFIG => size_of::<crate::CServerConfig>(),
        #[cfg(feature = "server")]
        SLIPGATE_STRUCT_CLIENT_INFO => size_of::<crate::CClientInfo>(),
        #[cfg(feature = "server")]
        SLIPGATE_STRUCT_CLAIMS => size_of::<crate::CClaims>(),
        _ => 0,
    };
    size as u32
}
