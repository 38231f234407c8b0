//! The processes that end with a child: its process group, or only the child if it does not lead a group.
//!
//! The system gives the number of a process group to no new process while the group has a member, and a process that has exited is a member
//! until it is reaped. So a signal cannot reach a stranger before the leader is reaped, nor later while a member is known:
//!
//! * The owner of the leader holds the lock around the group while it reaps the leader, and calls [`Group::note_reaped`] before it releases
//!   the lock. From then on the group is signalled only right after a test has shown that it has a member, and never again once a test
//!   has shown that it has none.
//! * The group may become empty between two tests, which are 10 ms apart while a transport waits for it. For its number to belong to another
//!   group by then, the system would have to give out all other numbers in this time, since it gives them out in turn.

#[cfg(unix)]
use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group, test_kill_process_group};

#[derive(Debug, Default)]
pub(crate) struct Group {
    /// `None` once nothing may be signalled any more.
    #[cfg(unix)]
    leader: Option<Pid>,
    /// `true` if the child leads a group; otherwise only the child itself is signalled.
    #[cfg(unix)]
    is_group: bool,
    #[cfg(unix)]
    is_reaped: bool,
    #[cfg(unix)]
    is_terminated: bool,
}

#[cfg(unix)]
impl Group {
    /// The group that the process leads, which has not been reaped.
    pub(crate) fn led_by(process: Option<u32>) -> Self {
        let leader = process.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let is_group = leader.is_some_and(|leader| getpgid(Some(leader)) == Ok(leader));
        Self { leader, is_group, is_reaped: false, is_terminated: false }
    }

    /// Sends SIGTERM, unless it was sent before. Returns `false` if it cannot be sent.
    pub(crate) fn terminate(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_terminated, true) {
            self.send(Signal::TERM);
        }
        self.leader.is_some()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.send(Signal::KILL);
    }

    fn send(&mut self, signal: Signal) {
        if self.is_empty() {
            return;
        }
        if let Some(leader) = self.leader {
            let _ = if self.is_group { kill_process_group(leader, signal) } else { kill_process(leader, signal) };
        }
    }

    /// Notes that the leader was reaped.
    pub(crate) fn note_reaped(&mut self) {
        self.is_reaped = true;
        self.is_empty();
    }

    /// Forgets the group, since the leader may be reaped at any time from now on.
    pub(crate) fn forget(&mut self) {
        self.leader = None;
    }

    /// Returns `true` if no process is left that could be signalled.
    pub(crate) fn is_empty(&mut self) -> bool {
        if self.is_reaped {
            // Processes of another user, which may not be signalled, do not count.
            self.leader = self.leader.filter(|leader| self.is_group && test_kill_process_group(*leader).is_ok());
        }
        self.leader.is_none()
    }
}

/// On systems without process groups there is nothing to signal, and nothing to wait for after the exit of the child.
#[cfg(not(unix))]
impl Group {
    pub(crate) fn led_by(_process: Option<u32>) -> Self {
        Self::default()
    }

    pub(crate) fn terminate(&mut self) -> bool {
        false
    }

    pub(crate) fn kill(&mut self) {}

    pub(crate) fn note_reaped(&mut self) {}

    pub(crate) fn forget(&mut self) {}

    pub(crate) fn is_empty(&mut self) -> bool {
        true
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_group_that_was_found_empty_is_never_signalled_again() {
        let mut child = Command::new("true").process_group(0).spawn().unwrap();
        let mut group = Group::led_by(Some(child.id()));
        assert!(group.is_group && !group.is_empty(), "a member until it is reaped");
        child.wait().unwrap();
        group.note_reaped();
        assert!(group.leader.is_none() && group.is_empty() && !group.terminate());
    }

    #[test]
    fn a_child_in_the_group_of_this_process_is_signalled_alone() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut group = Group::led_by(Some(child.id()));
        assert!(!group.is_group && group.terminate());
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        group.note_reaped();
        assert!(group.leader.is_none());
    }
}
