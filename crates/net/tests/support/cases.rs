//! Names of the cases that transports must pass. A case is a function of the same name in each suite; the lists make
//! one test of each for every transport, and a case that is on no list does not compile.

/// Cases of every transport.
macro_rules! transport_cases {
    ($run:ident) => {
        $run! {
            a_stream_opens_and_carries_elements_both_ways
            a_restart_expects_a_new_document
            unauthenticated_streams_have_smaller_limits
            elements_larger_than_the_read_buffer_arrive
            the_peer_closes_first
            the_server_closes_first
            a_cut_stream_ends_without_close
            a_peer_that_does_not_read_is_bounded
            a_slow_reader_gets_everything_in_order
            many_elements_come_out_of_one_read
            streams_share_the_buffers_without_mixing
            a_stream_that_kept_its_buffers_over_a_yield_is_ended_not_mixed
            garbage_ends_the_stream
        }
    };
}

/// Further cases of transports that carry the bytes of a document. BOSH has no such bytes: a request's body is read
/// when it is complete, and stream headers and white space between elements are not part of it.
#[allow(unused_macros, reason = "the suite of BOSH does not use it")]
macro_rules! byte_stream_cases {
    ($run:ident) => {
        $run! {
            input_may_be_cut_at_every_byte
            every_cut_into_two_gives_the_same_events
            an_element_without_a_restart_is_refused
            white_space_keeps_alive_and_costs_nothing
            an_error_can_be_sent_after_garbage
        }
    };
}
