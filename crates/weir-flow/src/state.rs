//! Implements IPVS's TCP states: transitions by event and by the directions of a connection that the director sees.
//!
//! The transitions are those of net/netfilter/ipvs/ip_vs_proto_tcp.c, the table without `secure_tcp`.
//!
//! A packet causes at most one event. Its direction, and whether replies pass through the director, select the table:
//! with `direct`, `tunnel` and `l3dsr`, only packets from the client are seen, and the client's FIN closes both
//! directions.

use weir_abi::State;
use weir_wire::TcpFlags;

/// The direction of a packet, and whether the director sees both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// From the client; the director also sees the replies (`nat`).
    Input,
    /// From the server (`nat`).
    Output,
    /// From the client; the director never sees the replies.
    OneSided,
}

impl View {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Input, Self::Output, Self::OneSided];
}

/// A TCP event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// SYN, with or without ACK.
    Syn,
    /// FIN.
    Fin,
    /// ACK without the other flags.
    Ack,
    /// RST.
    Rst,
}

impl Event {
    /// All values.
    pub const ALL: [Self; 4] = [Self::Syn, Self::Fin, Self::Ack, Self::Rst];

    /// Returns the event of a packet. The precedence is RST, SYN, FIN, ACK. Returns `None` if the packet has none of
    /// these flags.
    #[must_use]
    pub fn from_flags(flags: TcpFlags) -> Option<Self> {
        let order = [
            (TcpFlags::RST, Self::Rst),
            (TcpFlags::SYN, Self::Syn),
            (TcpFlags::FIN, Self::Fin),
            (TcpFlags::ACK, Self::Ack),
        ];
        order
            .into_iter()
            .find(|(flag, _)| flags.contains(*flag))
            .map(|(_, event)| event)
    }
}

/// The next states, indexed by [`State`]'s numbers, from `None` to `Synack`.
type Row = [State; 11];

const NO: State = State::None;
const ES: State = State::Established;
const SS: State = State::SynSent;
const SR: State = State::SynRecv;
const FW: State = State::FinWait;
const TW: State = State::TimeWait;
const CL: State = State::Close;
const CW: State = State::CloseWait;
const LA: State = State::LastAck;
const LI: State = State::Listen;
const SA: State = State::Synack;

const fn transitions(view: View, event: Event) -> Row {
    match (view, event) {
        // From:                          NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA
        (View::Input | View::OneSided, Event::Syn) => [SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SR],
        (View::Input, Event::Fin) => [CL, CW, SS, TW, TW, TW, CL, CW, LA, LI, TW],
        (View::OneSided, Event::Fin) => [CL, FW, SS, TW, FW, TW, CL, CW, LA, LI, TW],
        (View::Input | View::OneSided, Event::Ack) => [ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES],
        (View::Input, Event::Rst) => [CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, SR],
        (View::OneSided, Event::Rst) => [CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, CL],
        (View::Output, Event::Syn) => [SS, ES, SS, SR, SS, SS, SS, SS, SS, LI, SR],
        (View::Output, Event::Fin) => [TW, FW, SS, TW, FW, TW, CL, TW, LA, LI, TW],
        (View::Output, Event::Ack) => [ES, ES, SS, ES, FW, TW, CL, CW, LA, ES, ES],
        (View::Output, Event::Rst) => [CL, CL, SS, CL, CL, TW, CL, CL, CL, CL, CL],
    }
}

/// Returns the state after a packet with these control bits. A state that is not a TCP state does not change.
#[must_use]
pub fn next(state: State, view: View, flags: TcpFlags) -> State {
    match Event::from_flags(flags) {
        Some(event) => transitions(view, event)
            .get(state as usize)
            .copied()
            .unwrap_or(state),
        None => state,
    }
}

/// Returns the initial state of a flow. The view is one-sided for all forwarding methods, because the director has seen
/// no reply yet.
#[must_use]
pub fn initial(flags: TcpFlags) -> State {
    next(NO, View::OneSided, flags)
}

/// Returns whether a TCP flow in this state counts as active. In all other states, it is inactive.
#[must_use]
pub const fn is_active(state: State) -> bool {
    matches!(state, ES | SS | SR | SA)
}

/// Returns whether a SYN for a flow in this state begins a new connection: `conn_reuse_mode = 1`
/// (net/netfilter/ipvs/ip_vs_core.c).
#[must_use]
pub(crate) const fn allows_reuse(state: State) -> bool {
    matches!(state, TW | CL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rst_takes_precedence_over_syn_fin_and_ack() {
        let all_flags = TcpFlags(0xff);
        assert_eq!(Event::from_flags(all_flags), Some(Event::Rst));
        assert_eq!(Event::from_flags(TcpFlags(0xff ^ 4)), Some(Event::Syn));
        assert_eq!(Event::from_flags(TcpFlags(0xff ^ 6)), Some(Event::Fin));
        assert_eq!(Event::from_flags(TcpFlags(0xff ^ 7)), Some(Event::Ack));
        assert_eq!(Event::from_flags(TcpFlags(0xff ^ 23)), None);
    }

    #[test]
    fn connection_seen_in_both_directions_has_ipvs_states() {
        let steps = [
            (View::Input, TcpFlags::SYN, SR),
            (View::Output, TcpFlags(0x12), SR),
            (View::Input, TcpFlags::ACK, ES),
            (View::Output, TcpFlags::ACK, ES),
            (View::Input, TcpFlags(0x11), CW),
            (View::Output, TcpFlags(0x11), TW),
            (View::Input, TcpFlags::ACK, TW),
        ];
        let mut state = NO;
        for (view, flags, expected) in steps {
            state = next(state, view, flags);
            assert_eq!(state, expected, "{view:?} {flags:?}");
        }
    }

    #[test]
    fn connection_seen_in_one_direction_has_ipvs_states() {
        let mut state = initial(TcpFlags::SYN);
        assert_eq!(state, SR);
        for (flags, expected) in [
            (TcpFlags::ACK, ES),
            (TcpFlags(0x18), ES),
            (TcpFlags(0x11), FW),
            (TcpFlags::ACK, FW),
            (TcpFlags::SYN, SR),
        ] {
            state = next(state, View::OneSided, flags);
            assert_eq!(state, expected);
        }
    }

    #[test]
    fn reset_closes_the_same_states_as_in_ipvs() {
        for state in State::ALL
            .iter()
            .copied()
            .filter(|state| *state != State::Udp)
        {
            let after = next(state, View::Input, TcpFlags::RST);
            match state {
                SR | SA => assert_eq!(after, SR),
                LA | LI => assert_eq!(after, state),
                _ => assert_eq!(after, CL, "{state:?}"),
            }
        }
    }

    #[test]
    fn packets_without_event_and_udp_keep_the_state() {
        for view in View::ALL {
            assert_eq!(next(ES, view, TcpFlags::PSH), ES);
            assert_eq!(next(State::Udp, view, TcpFlags::SYN), State::Udp);
        }
    }

    #[test]
    fn established_and_opening_states_are_active() {
        let active: Vec<State> = State::ALL
            .iter()
            .copied()
            .filter(|state| is_active(*state))
            .collect();
        assert_eq!(active, [ES, SS, SR, SA]);
    }

    #[test]
    fn only_closed_and_waiting_connections_allow_reuse() {
        let reusable: Vec<State> = State::ALL
            .iter()
            .copied()
            .filter(|state| allows_reuse(*state))
            .collect();
        assert_eq!(reusable, [TW, CL]);
    }
}
