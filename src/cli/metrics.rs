//! `--metrics`: where the figures of a run are served.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use super::terminal::say;
use crate::trace::{MetricsError, MetricsListener};

/// `ADDR:PORT`, or a port on this machine alone.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let known = text.to_socket_addrs().ok().and_then(|mut known| known.next());
    known.ok_or_else(|| {
        "write a port (9090), which only this machine reaches, or an address and a port \
         (0.0.0.0:9090)"
            .to_owned()
    })
}

/// Listens at `addr` before anything runs.
pub(super) fn listen(addr: SocketAddr) -> Result<MetricsListener, MetricsError> {
    MetricsListener::bind(addr).inspect_err(|error| {
        say(&format!("error: {error}\n"));
        let MetricsError::Bind { source, .. } = error else { return };
        match source.kind() {
            ErrorKind::AddrInUse => say("  help: another process listens there, perhaps another \
                                         run: give another port, or 0 to have one picked\n"),
            ErrorKind::AddrNotAvailable => {
                say("  help: this machine has no such address: 0.0.0.0 stands for all it has\n");
            }
            ErrorKind::PermissionDenied => say("  help: ports below 1024 are for root\n"),
            _ => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_is_for_this_machine_alone() {
        for (text, told) in [
            ("9090", "127.0.0.1:9090"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:9090", "0.0.0.0:9090"),
            ("[::1]:9090", "[::1]:9090"),
        ] {
            assert_eq!(address(text).map(|addr| addr.to_string()), Ok(told.to_owned()));
        }
        for wrong in ["", "90900", "127.0.0.1", ":", "-1", "127.0.0.1:"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
