//! Finds the user at the other end of a TCP connection within this machine, in `/proc/net/tcp` and `/proc/net/tcp6` of Linux. Other systems
//! have no such tables.
//!
//! A table has a line for each socket: a number, the socket's address, its peer's address, its state, two queues, a timer, retries, the
//! user who created it, a timeout, and the inode. Once no process has the socket any longer, the inode and the user are 0.

use core::net::SocketAddr;
#[cfg(not(target_os = "linux"))]
use std::vec::Vec;

use crate::claims::{Peer, PeerUser};

#[cfg(target_os = "linux")]
pub(super) use linux::find_with_processes;
#[cfg(target_os = "linux")]
pub use linux::{can_be_known, find_all};

/// Returns `true` if this system reports which user has connected.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn can_be_known() -> bool {
    false
}

/// The users at `remotes`, the other ends of connections that were accepted at `local`; `None` for a connection that has already ended.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn find_all(_local: SocketAddr, remotes: &[SocketAddr]) -> Vec<Option<PeerUser>> {
    remotes.iter().map(|_| Some(PeerUser::Unknown)).collect()
}

/// The same peers, with their processes if they are those of this user.
#[cfg(not(target_os = "linux"))]
pub(super) fn find_with_processes(local: SocketAddr, remotes: &[SocketAddr]) -> Vec<Option<Peer>> {
    find_all(local, remotes).into_iter().map(|user| user.map(Peer::from)).collect()
}

#[cfg(target_os = "linux")]
mod linux {
    use core::net::IpAddr;
    use std::collections::{BTreeMap, BTreeSet};
    use std::format;
    use std::fs::{self, File};
    use std::io::{self, BufRead, BufReader, Read as _};
    use std::string::String;
    use std::vec::Vec;

    use super::{Peer, PeerUser, SocketAddr};

    const TABLE: &str = "/proc/net/tcp";
    const TABLE_OF_IPV6: &str = "/proc/net/tcp6";

    /// The maximum number of bytes that are read of a table: about 220 000 lines of 150 bytes, which takes half a second. If there are more
    /// sockets, the users in later lines stay unknown.
    const MAX_TABLE_BYTES: u64 = 32 * 1024 * 1024;

    /// The maximum number of times that a table is read, until all sockets are found. Reading a table is not atomic: sockets that are
    /// opened and closed meanwhile can hide other ones.
    const PASSES: usize = 2;

    /// The user id that stands for all users that this user namespace does not map.
    const OVERFLOW: u32 = 65534;

    /// Returns `true` if this system reports which user has connected.
    #[must_use]
    pub fn can_be_known() -> bool {
        File::open(TABLE).is_ok()
    }

    /// The users at `remotes`, the other ends of connections that were accepted at `local`; `None` for a connection that has already ended.
    /// Looking up many users takes no longer than looking up one. Blocks while the tables are read, which takes half a second if they are
    /// as long as they may be.
    #[must_use]
    pub fn find_all(local: SocketAddr, remotes: &[SocketAddr]) -> Vec<Option<PeerUser>> {
        let this_user = rustix::process::geteuid().as_raw();
        let user = |found: Option<Socket>| found.map_or(Some(PeerUser::Unknown), |socket| socket.peer(this_user));
        find_sockets(local, remotes).into_iter().map(user).collect()
    }

    /// The peers at `remotes`, as [`find_all`], with the processes of those that belong to this user.
    pub(in crate::net) fn find_with_processes(local: SocketAddr, remotes: &[SocketAddr]) -> Vec<Option<Peer>> {
        let this_user = rustix::process::geteuid().as_raw();
        let sockets = find_sockets(local, remotes);
        let is_ours = |socket: &&Socket| socket.peer(this_user) == Some(PeerUser::ThisUser);
        let processes = processes_of(sockets.iter().flatten().filter(is_ours).map(|socket| socket.inode).collect());
        let peer = |found: Option<Socket>| {
            let Some(socket) = found else { return Some(PeerUser::Unknown.into()) };
            Some(Peer::new(socket.peer(this_user)?, processes.get(&socket.inode).copied()))
        };
        sockets.into_iter().map(peer).collect()
    }

    fn find_sockets(local: SocketAddr, remotes: &[SocketAddr]) -> Vec<Option<Socket>> {
        let mut wanted = Wanted::new(local, remotes);
        for _ in 0..PASSES {
            for table in [TABLE, TABLE_OF_IPV6] {
                if let (true, Ok(table)) = (wanted.is_incomplete(), File::open(table)) {
                    // The sockets that were found before an error are used.
                    let _ = wanted.read(BufReader::new(table.take(MAX_TABLE_BYTES)));
                }
            }
        }
        wanted.found
    }

    /// Finds the processes that have the sockets with these inodes, by the files that each process has open: `/proc/PROCESS/fd/NUMBER` is a
    /// link to `socket:[INODE]`. The files of processes of other users cannot be read, and need not be.
    fn processes_of(mut wanted: BTreeSet<u64>) -> BTreeMap<u64, u32> {
        let mut found = BTreeMap::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            if wanted.is_empty() {
                break;
            }
            let Some(id) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            for file in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
                let inode = fs::read_link(file.path())
                    .ok()
                    .and_then(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
                if let Some(inode) = inode.filter(|inode| wanted.remove(inode)) {
                    found.insert(inode, id);
                }
            }
        }
        found
    }

    /// The columns that are read of a socket's line.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Socket {
        user: u32,
        inode: u64,
    }

    impl Socket {
        pub(super) fn peer(self, this_user: u32) -> Option<PeerUser> {
            match self {
                // No process has the socket any longer, so the connection has ended.
                Self { inode: 0, .. } => None,
                Self { user, .. } if user != this_user => Some(PeerUser::OtherUser(user)),
                Self { user: OVERFLOW, .. } => Some(PeerUser::Unknown),
                Self { .. } => Some(PeerUser::ThisUser),
            }
        }
    }

    /// The sockets to look for: the other ends of our connections.
    pub(super) struct Wanted {
        /// The index in `found` of each socket, by its address as in the tables.
        indexes: BTreeMap<String, usize>,
        /// Our own address, as in the tables.
        ours: [String; 2],
        found: Vec<Option<Socket>>,
    }

    impl Wanted {
        pub(super) fn new(local: SocketAddr, remotes: &[SocketAddr]) -> Self {
            let indexes = remotes.iter().enumerate().flat_map(|(index, remote)| forms(*remote).map(|form| (form, index)));
            Self { indexes: indexes.collect(), ours: forms(local), found: remotes.iter().map(|_| None).collect() }
        }

        fn is_incomplete(&self) -> bool {
            self.found.iter().any(Option::is_none)
        }

        /// Searches a table until all sockets are found. A malformed line is skipped. Returns an error if the table cannot be read, or is
        /// not UTF-8.
        pub(super) fn read(&mut self, mut table: impl BufRead) -> io::Result<()> {
            let mut line = String::new();
            while self.is_incomplete() && table.read_line(&mut line)? > 0 {
                if let Some((index, socket)) = self.line(&line)
                    && let Some(found) = self.found.get_mut(index)
                {
                    found.get_or_insert(socket);
                }
                line.clear();
            }
            Ok(())
        }

        /// Reads a line; `None` if it is malformed, or not that of a socket to look for.
        fn line(&self, line: &str) -> Option<(usize, Socket)> {
            let mut columns = line.split_ascii_whitespace().skip(1);
            let index = self.indexes.get(columns.next()?)?;
            let peer = columns.next()?;
            if !self.ours.iter().any(|form| form == peer) {
                return None;
            }
            let user = columns.nth(4)?.parse().ok()?;
            let inode = columns.nth(1)?.parse().ok()?;
            Some((*index, Socket { user, inode }))
        }
    }

    /// An address as it is written in the tables of both families: words of four bytes in the byte order of this machine, then the port.
    fn forms(address: SocketAddr) -> [String; 2] {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let words = |bytes: &[u8]| {
            let word = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).unwrap_or_default();
            bytes.chunks_exact(4).map(|bytes| format!("{:08X}", word(bytes))).collect::<String>()
        };
        let of_ipv4 = if let IpAddr::V4(ip) = ip { words(&ip.octets()) } else { String::new() };
        let of_ipv6 = match ip {
            IpAddr::V4(ip) => words(&ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => words(&ip.octets()),
        };
        [of_ipv4, of_ipv6].map(|address| format!("{address}:{port:04X}"))
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::net::{TcpListener, TcpStream};

        /// A recorded table: a listener, both ends of a connection, and one end that its process has closed.
        #[cfg(target_endian = "little")]
        const RECORDED: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     
   0: 0100007F:E639 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 18336 1 000000006cd8b7ce 100 0 0 10 0                     
   1: 0700007F:CFC7 0100007F:E639 01 00000000:00000000 00:00000000 00000000  1000        0 18338 2 00000000133161fb 20 0 0 10 -1                     
   2: 0100007F:E639 0700007F:CFC7 01 00000000:00000000 00:00000000 00000000  1001        0 18340 1 00000000dc40b48f 20 0 0 10 -1                     
   3: 0100007F:CFC8 0100007F:E639 04 00000001:00000000 01:00000014 00000000     0        0 0 2 00000000133161fb 20 0 0 10 -1                         
";
        #[cfg(target_endian = "little")]
        const RECORDED_OF_IPV6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:89E0 0000000000000000FFFF00000100007F:E639 01 00000000:00000000 00:00000000 00000000  1002        0 18337 2 000000003b8cd5d5 20 0 0 10 -1
   1: 00000000000000000000000001000000:89E1 00000000000000000000000001000000:E639 01 00000000:00000000 00:00000000 00000000  1003        0 18341 2 000000003b8cd5d5 20 0 0 10 -1
";

        /// The socket in `table` that has the address `own` and is connected to `other`.
        #[cfg(target_endian = "little")]
        fn read_text(table: &str, own: &str, other: &str) -> Option<Socket> {
            let mut wanted = Wanted::new(other.parse().unwrap(), &[own.parse().unwrap()]);
            wanted.read(table.as_bytes()).unwrap();
            wanted.found[0]
        }

        #[cfg(target_endian = "little")]
        #[test]
        fn the_user_is_read_from_the_line_of_the_peers_own_socket() {
            let found = read_text(RECORDED, "127.0.0.7:53191", "127.0.0.1:58937");
            assert_eq!(found, Some(Socket { user: 1000, inode: 18338 }));
            let our_end = read_text(RECORDED, "127.0.0.1:58937", "127.0.0.7:53191");
            assert_eq!(our_end, Some(Socket { user: 1001, inode: 18340 }));
            let closed = read_text(RECORDED, "127.0.0.1:53192", "127.0.0.1:58937");
            assert_eq!(closed, Some(Socket { user: 0, inode: 0 }));
            for (own, other) in [
                ("127.0.0.7:53191", "127.0.0.1:58938"),
                ("127.0.0.8:53191", "127.0.0.1:58937"),
                ("127.0.0.1:58937", "0.0.0.0:1"),
                ("[::1]:53191", "[::1]:58937"),
            ] {
                assert_eq!(read_text(RECORDED, own, other), None, "{own} {other}");
            }
        }

        #[cfg(target_endian = "little")]
        #[test]
        fn an_ipv6_socket_with_an_ipv4_address_is_found_by_that_address() {
            for own in ["127.0.0.1:35296", "[::ffff:127.0.0.1]:35296"] {
                assert_eq!(read_text(RECORDED_OF_IPV6, own, "127.0.0.1:58937"), Some(Socket { user: 1002, inode: 18337 }), "{own}");
            }
            let found = read_text(RECORDED_OF_IPV6, "[::1]:35297", "[::1]:58937");
            assert_eq!(found, Some(Socket { user: 1003, inode: 18341 }));
        }

        #[cfg(target_endian = "little")]
        #[test]
        fn lines_that_cannot_be_parsed_are_skipped() {
            let whole = RECORDED.lines().nth(2).unwrap();
            for line in
                ["", " ", "\u{e4}", "1: 0700007F:CFC7", &whole[..60], &whole.replace("1000", "-1"), &whole.replace("18338", "x")]
            {
                assert_eq!(read_text(line, "127.0.0.7:53191", "127.0.0.1:58937"), None, "{line:?}");
                let followed = format!("{line}\n{whole}");
                assert!(read_text(&followed, "127.0.0.7:53191", "127.0.0.1:58937").is_some(), "{line:?}");
            }
            let mut wanted = Wanted::new("127.0.0.1:58937".parse().unwrap(), &["127.0.0.7:53191".parse().unwrap()]);
            assert!(wanted.read(&b"\xff\n"[..]).is_err());
        }

        #[cfg(target_endian = "little")]
        #[test]
        fn one_pass_finds_several_users_and_stops_when_all_are_found() {
            let remotes = ["127.0.0.7:53191", "127.0.0.9:1", "127.0.0.1:53192"].map(|remote| remote.parse().unwrap());
            let local = "127.0.0.1:58937".parse().unwrap();
            let mut wanted = Wanted::new(local, &remotes);
            wanted.read(RECORDED.as_bytes()).unwrap();
            let users: Vec<_> = wanted.found.iter().map(|found| found.map(|socket| socket.user)).collect();
            assert_eq!(users, [Some(1000), None, Some(0)]);
            let mut wanted = Wanted::new(local, &remotes[..1]);
            let mut table = RECORDED.as_bytes();
            wanted.read(&mut table).unwrap();
            assert_eq!(table.iter().filter(|byte| **byte == b'\n').count(), 2, "the lines after it are not read");
        }

        #[test]
        fn only_a_socket_held_by_a_process_of_this_user_belongs_to_this_user() {
            let peer = |user, inode, this_user| Socket { user, inode }.peer(this_user);
            assert_eq!(peer(1000, 1, 1000), Some(PeerUser::ThisUser));
            assert_eq!(peer(1001, 1, 1000), Some(PeerUser::OtherUser(1001)));
            assert_eq!(peer(0, 1, 1000), Some(PeerUser::OtherUser(0)), "also the superuser");
            assert_eq!(peer(0, 1, 0), Some(PeerUser::ThisUser));
            assert_eq!(peer(0, 0, 0), None, "a socket that was closed is shown as one of the superuser");
            assert_eq!(peer(OVERFLOW, 1, OVERFLOW), Some(PeerUser::Unknown), "it may be any of the users that are not mapped");
            assert_eq!(peer(OVERFLOW, 1, 1000), Some(PeerUser::OtherUser(OVERFLOW)));
        }

        /// A listener, the end of a connection that connects to it by `address`, and the end that it accepts; `None` if this machine has
        /// no such address.
        fn connected(address: &str) -> Option<(TcpListener, TcpStream, TcpStream)> {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect(format!("{address}:{port}")).ok()?;
            let (accepted, _) = listener.accept().unwrap();
            Some((listener, client, accepted))
        }

        fn found(accepted: &TcpStream) -> Option<PeerUser> {
            find_all(accepted.local_addr().unwrap(), &[accepted.peer_addr().unwrap()])[0]
        }

        #[test]
        fn a_connection_of_this_user_is_found_in_the_tables_of_this_machine() {
            assert!(can_be_known());
            let (_listener, client, accepted) = connected("127.0.0.1").unwrap();
            assert_eq!(found(&accepted), Some(PeerUser::ThisUser));
            let ends = (accepted.local_addr().unwrap(), [accepted.peer_addr().unwrap()]);
            let this_process = Peer::new(PeerUser::ThisUser, Some(std::process::id()));
            assert_eq!(find_with_processes(ends.0, &ends.1), [Some(this_process)]);
            drop(client);
            assert_ne!(found(&accepted), Some(PeerUser::ThisUser), "the peer has closed it");
            // A machine without IPv6 has no such connections.
            if let Some((_listener, _client, accepted)) = connected("[::ffff:127.0.0.1]") {
                assert_eq!(found(&accepted), Some(PeerUser::ThisUser));
            }
        }

        #[test]
        fn a_connection_of_another_user_is_found_in_the_tables_of_this_machine() {
            let (_listener, client, accepted) = connected("127.0.0.1").unwrap();
            if std::os::unix::fs::fchown(&client, Some(12345), None).is_err() {
                std::eprintln!("not tested: only the superuser can change the owner of a socket");
                return;
            }
            assert_eq!(found(&accepted), Some(PeerUser::OtherUser(12345)));
        }
    }
}
