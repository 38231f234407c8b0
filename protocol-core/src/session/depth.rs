//! The rules of sampling depth.
//!
//! A sampling request has a depth one greater than its call. Any other input request has the depth of its call. A call that is made on
//! behalf of an input request has the depth of that input request, and any other call has depth 0. A message or the owner may state a
//! greater depth.

use crate::dialect::InputRequest;

/// The depth of an input request of a call that has the depth `parent`. `stated` is the depth that the message states; it counts if it is
/// greater.
pub(super) fn of_input(ask: &InputRequest, parent: u8, stated: u8) -> u8 {
    let own = if matches!(ask, InputRequest::Sample(_)) { parent.saturating_add(1) } else { parent };
    own.max(stated)
}

/// Returns `true` if an input request of this depth may be made or answered. Only sampling requests are bounded.
pub(super) fn is_allowed(ask: &InputRequest, depth: u8, max: u8) -> bool {
    !matches!(ask, InputRequest::Sample(_)) || depth <= max
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Sample;

    #[test]
    fn a_sampling_request_is_one_deeper_than_its_call_and_any_other_is_not() {
        let sample = InputRequest::from(Sample::new("?"));
        assert_eq!(of_input(&sample, 0, 0), 1);
        assert_eq!(of_input(&sample, 2, 0), 3);
        assert_eq!(of_input(&InputRequest::Roots, 2, 0), 2);
        assert_eq!(of_input(&sample, u8::MAX, 0), u8::MAX);
    }

    #[test]
    fn the_depth_in_a_message_can_only_raise_the_depth() {
        let sample = InputRequest::from(Sample::new("?"));
        assert_eq!(of_input(&sample, 2, 1), 3);
        assert_eq!(of_input(&sample, 0, 3), 3);
    }

    #[test]
    fn only_sampling_is_refused_for_its_depth() {
        let sample = InputRequest::from(Sample::new("?"));
        assert!(is_allowed(&sample, 3, 3));
        assert!(!is_allowed(&sample, 4, 3));
        assert!(is_allowed(&InputRequest::Roots, 200, 3));
    }
}
