//! Names of all measurements, in the order of their numbers.
//!
//! JSON reports and `compare` use the names, so none is ever reused with another meaning.
//!
//! # Pitfalls
//!
//! Numbers are positions in these lists; workers and controller exchange them, and must be of the same version.

macro_rules! names {
    ($(#[$outer:meta])* $type:ident { $($(#[$doc:meta])* $item:ident = $name:literal, $title:literal;)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$doc])* $item,)* }

        impl $type {
            /// All, in the order of their numbers.
            pub const ALL: &'static [$type] = &[$($type::$item),*];

            /// Name in JSON.
            pub fn name(self) -> &'static str {
                match self { $($type::$item => $name),* }
            }

            /// Title in reports.
            pub fn title(self) -> &'static str {
                match self { $($type::$item => $title),* }
            }
        }
    };
}

names! {
    /// Timings, besides the transactions of the plan.
    Timing {
        /// TCP connect, from due time to connected.
        Connect = "connect", "TCP connect";
        /// The TLS handshake.
        Tls = "tls", "TLS handshake";
        /// Over HTTP: from requesting a session to its first features.
        Initiate = "initiate", "Session initiation";
        /// From sending a stream header to its features (two or three times per login).
        Features = "features", "Stream header and features";
        /// SASL from `<auth/>` to `<success/>`.
        Authenticate = "authenticate", "Authentication";
        /// Resource binding.
        Bind = "bind", "Resource binding";
        /// RFC 3921 session establishment.
        OpenSession = "session", "Session";
        /// From due time to bound resource, everything in between included.
        Login = "login", "Whole login";
        /// XEP-0077 registration.
        Register = "register", "Registration";
        /// Roster request.
        Roster = "roster", "Roster";
        /// Roster change.
        RosterSet = "roster_set", "Roster change";
        /// From initial presence to its own reflection.
        PresenceEcho = "presence_self", "Presence, to its reflection";
        /// Ping to the server.
        Ping = "ping", "Ping of the server";
        /// Ping to another client.
        PingUser = "ping_user", "Ping of a user";
        /// Raw requests with a response, and other IQs.
        Request = "request", "Other request";
        /// XEP-0198 enable.
        SmEnable = "sm_enable", "Stream management";
        /// XEP-0198 resume, from the lost connection to `<resumed/>`.
        SmResume = "sm_resume", "Resumption";
        /// XEP-0198 acknowledgement, from the request to the count that covers what was sent before it.
        SmAck = "sm_ack", "Acknowledgement by the server";
        /// One-way delivery of messages to users who were online.
        Message = "message", "Message delivery";
        /// Part of `message`: sender and recipient are connected to the same target. Only with several targets.
        MessageSameNode = "message_same_node", "Message, same node";
        /// Part of `message`: they are connected to different targets.
        MessageCrossNode = "message_cross_node", "Message, cross-node";
        /// One-way delivery of messages that were stored by the server (delayed delivery).
        MessageStored = "message_stored", "Delivery of offline messages";
        /// Round trip between machines without a common clock.
        Echo = "message_echo", "Message and echo between machines";
        /// Delivery of a presence change to a contact.
        Presence = "presence", "Presence delivery";
        /// Part of `presence`: both contacts are connected to the same target. Only with several targets.
        PresenceSameNode = "presence_same_node", "Presence, same node";
        /// Part of `presence`: they are connected to different targets.
        PresenceCrossNode = "presence_cross_node", "Presence, cross-node";
        /// Joining a room (XEP-0045), from due time to self-presence with status 110.
        RoomJoin = "room_join", "Room join";
        /// Leaving a room, from due time to its confirmation.
        RoomLeave = "room_leave", "Room leave";
        /// Change of a nickname in a room, from due time to self-presence with the new one.
        RoomNick = "room_nick", "Change of a nickname";
        /// One-way delivery of a room message to each occupant, the sender included.
        RoomMessage = "room_message", "Room message, to each occupant";
        /// Delivery of a presence change to each occupant of a room, at servers that keep its id.
        RoomPresence = "room_presence", "Room presence, to each occupant";
        /// Subscription to a PubSub node (XEP-0060), from due time to the answer.
        NodeSubscribe = "node_subscribe", "Subscription to a node";
        /// End of a subscription, from due time to the answer.
        NodeUnsubscribe = "node_unsubscribe", "End of a subscription";
        /// Publication, from due time to the answer.
        NodePublish = "node_publish", "Publication at a node";
        /// One-way delivery of an item to each subscriber.
        NodeEvent = "node_event", "Event, to each subscriber";
        /// Length of whole user sessions.
        Session = "user_session", "Duration of user sessions";
        /// Wait of logins for the generator's own key derivation (SCRAM); not part of the other times.
        Derive = "key_derivation", "Wait for key derivation by the generator";
        /// Lateness of the generator in sending what was due.
        Lateness = "lateness", "Generator lateness";
        /// Duration of one turn of the generator's loop: bytes may have waited this long before being read.
        Turn = "loop_turn", "Generator event-loop turn";
    }
}

names! {
    /// Counters.
    Counter {
        /// Users that arrived.
        UsersStarted = "users_started", "Users arrived";
        /// Users whose session ended as planned.
        UsersFinished = "users_finished", "Users finished";
        /// TCP connections established.
        Connections = "connections", "Connections";
        /// Connections that failed or timed out.
        ConnectErrors = "connect_errors", "Failed connections";
        /// Logins that succeeded.
        Logins = "logins", "Logins";
        /// Logins that failed.
        LoginErrors = "login_errors", "Failed logins";
        /// Sessions (after login) that ended unexpectedly: closed by the server, cut or reset.
        SessionsLost = "sessions_lost", "Sessions lost";
        /// Sessions that a user began at another target after it had lost one.
        SessionsReplaced = "sessions_replaced", "… begun anew at another target";
        /// Sessions resumed by stream management.
        SessionsResumed = "sessions_resumed", "Sessions resumed";
        /// Numbered messages sent to users of the run.
        MessagesSent = "messages_sent", "Messages sent";
        /// Those whose recipient was online when they were sent.
        MessagesToOnline = "messages_to_online", "… to users online";
        /// Messages to other addresses, whose arrival is not tracked.
        MessagesElsewhere = "messages_elsewhere", "Messages to other addresses";
        /// Numbered messages received, each counted once.
        MessagesDelivered = "messages_delivered", "Messages delivered";
        /// Those with a delay stamp: stored by the server.
        MessagesDelayed = "messages_delayed", "… that waited in the server";
        /// Messages received more than once.
        MessagesDuplicate = "messages_duplicate", "Messages duplicated";
        /// Duplicates with the stanza-id of the first copy (XEP-0359): the server delivered one message twice.
        DuplicateSameId = "messages_duplicate_same_id", "… with the same stanza-id";
        /// Duplicates with another stanza-id: the server accepted the message again when its sender repeated it.
        DuplicateOtherId = "messages_duplicate_other_id", "… with another stanza-id";
        /// Duplicates without a stanza-id to compare.
        DuplicateUnknownId = "messages_duplicate_unknown_id", "… without a stanza-id";
        /// Messages that the server has acknowledged (XEP-0198), in a run with failures.
        MessagesAcknowledged = "messages_acknowledged", "Messages acknowledged";
        /// Messages that their senders repeated because they were not acknowledged.
        MessagesResent = "messages_resent", "Messages sent again";
        /// Known only at the end of a run with failures: acknowledged by the server, and neither delivered nor returned.
        AcknowledgedLost = "messages_acknowledged_lost", "Acknowledged messages lost";
        /// Known only at the end: never acknowledged, and neither delivered nor returned.
        UnacknowledgedLost = "messages_unacknowledged_lost", "Unacknowledged messages lost";
        /// Known only at the end of a run with failures: users without a session, whose messages may wait in the server.
        UsersAway = "users_away", "Users without a session at the end";
        /// Messages received after a later one between the same two users.
        MessagesReordered = "messages_reordered", "Messages out of order";
        /// Messages that bounced with an error.
        MessagesRefused = "messages_refused", "Messages refused";
        /// Known only at the end of the run: sent to users who stayed online, and never arrived.
        MessagesLost = "messages_lost", "Messages lost";
        /// Known only at the end: sent to users who were offline, had left or were cut off, and not (yet) fetched.
        MessagesWaiting = "messages_waiting", "Messages left for offline users";
        /// Messages that do not belong to this run.
        MessagesForeign = "messages_foreign", "Messages from other senders";
        /// Rooms joined: self-presence with status 110 arrived.
        RoomJoins = "room_joins", "Rooms joined";
        /// Joins that the room refused or did not answer.
        RoomJoinErrors = "room_join_errors", "Failed joins of rooms";
        /// Rooms left, with the room's confirmation.
        RoomLeaves = "room_leaves", "Rooms left";
        /// Numbered messages sent to rooms.
        RoomMessagesSent = "room_messages_sent", "Room messages sent";
        /// Those that the room returned with an error.
        RoomMessagesRefused = "room_messages_refused", "Room messages refused";
        /// Known only at the end: room messages that were not returned and reached no occupant.
        RoomMessagesUnreceived = "room_messages_unreceived", "Room messages that reached nobody";
        /// Copies of room messages that occupants received, each counted once.
        RoomCopies = "room_copies", "Copies of room messages";
        /// Known only at the end: copies that an occupant did not receive although another one received the message.
        RoomCopiesLost = "room_copies_lost", "Copies lost";
        /// Copies that an occupant had received before.
        RoomCopiesDuplicate = "room_copies_duplicate", "Copies duplicated";
        /// Known only at the end: copies received after a later one in the order of the room.
        RoomCopiesReordered = "room_copies_reordered", "Copies out of the room's order";
        /// Known only at the end: copies received after a later one of the same sender.
        RoomSenderReordered = "room_sender_reordered", "Copies out of the sender's order";
        /// Copies received before the self-presence or after leaving.
        RoomCopiesOutside = "room_copies_outside", "Copies while not in the room";
        /// Messages of the history received on joining.
        RoomHistory = "room_history", "Messages of room histories";
        /// Subscriptions to PubSub nodes.
        NodeSubscriptions = "node_subscriptions", "Subscriptions to nodes";
        /// Ended subscriptions.
        NodeUnsubscriptions = "node_unsubscriptions", "Subscriptions ended";
        /// Requests to begin or end subscriptions that were refused or not answered.
        NodeSubscriptionErrors = "node_subscription_errors", "Failed subscriptions";
        /// Numbered items sent to PubSub nodes.
        NodePublications = "node_publications", "Items published";
        /// Those that were refused.
        NodePublicationsRefused = "node_publications_refused", "Items refused";
        /// Known only at the end: items that were not refused and reached no subscriber of the run.
        NodePublicationsUnreceived = "node_publications_unreceived", "Items that reached nobody";
        /// Items that subscribers received, each counted once.
        NodeEvents = "node_events", "Events of nodes";
        /// Known only at the end: items that a subscriber did not receive although another one did.
        NodeEventsLost = "node_events_lost", "Events lost";
        /// Items that a subscriber had received before.
        NodeEventsDuplicate = "node_events_duplicate", "Events duplicated";
        /// Known only at the end: items received after a later one in the order of the node.
        NodeEventsReordered = "node_events_reordered", "Events out of the node's order";
        /// Known only at the end: items received after a later one of the same publisher.
        NodePublisherReordered = "node_publisher_reordered", "Events out of a publisher's order";
        /// Items received before the answer to the subscription or after its end.
        NodeEventsOutside = "node_events_outside", "Events without a subscription";
        /// Last items, received on subscription or presence.
        NodeLastItems = "node_last_items", "Last items of nodes";
        /// Presence sent.
        PresenceSent = "presence_sent", "Presence sent";
        /// Presence received.
        PresenceReceived = "presence_received", "Presence received";
        /// IQ requests sent.
        IqSent = "iq_sent", "Requests sent";
        /// IQ responses received, errors included.
        IqAnswered = "iq_answered", "Requests answered";
        /// IQ responses of type error.
        IqErrors = "iq_errors", "Requests refused";
        /// Answers that did not arrive in time.
        Timeouts = "timeouts", "Answers missing";
        /// Answers and deliveries within the acceptable limit.
        Acceptable = "acceptable", "Acceptable answers";
        /// Answers and deliveries beyond the acceptable limit.
        Unacceptable = "unacceptable", "Late responses";
        /// Stanzas sent.
        StanzasOut = "stanzas_sent", "Stanzas sent";
        /// Stanzas that the server has acknowledged (XEP-0198).
        StanzasAcknowledged = "stanzas_acknowledged", "… acknowledged by the server";
        /// Stanzas received.
        StanzasIn = "stanzas_received", "Stanzas received";
        /// Bytes written to sockets, TLS included.
        BytesOut = "bytes_sent", "Bytes sent";
        /// Bytes read from sockets, TLS included.
        BytesIn = "bytes_received", "Bytes received";
        /// Tsung's `match`: pattern found.
        Matches = "match", "Matches";
        /// Tsung's `match`: pattern not found.
        NoMatches = "nomatch", "No match";
        /// BOSH requests, empty ones included.
        HttpRequests = "http_requests", "BOSH requests";
        /// Those without a payload.
        HttpPolls = "http_polls", "… that only wait";
        /// Requests resent because their connection broke.
        HttpAgain = "http_again", "… sent again";
        /// Bytes of the answers that started sessions: the length in the table of steps.
        InitiateBytes = "initiate_bytes", "Bytes of answers: initiate";
        /// Bytes of the answers that completed SASL.
        AuthenticateBytes = "authenticate_bytes", "Bytes of answers: authenticate";
        /// Bytes of the answers to resource binding.
        BindBytes = "bind_bytes", "Bytes of answers: bind";
        /// Bytes of the answers to RFC 3921 session requests.
        SessionBytes = "session_bytes", "Bytes of answers: session";
        /// Bytes of rosters.
        RosterBytes = "roster_bytes", "Bytes of answers: roster";
        /// Bytes of the answers that reflected a user's own presence.
        PresenceBytes = "presence_bytes", "Bytes of answers: presence";
        /// Bytes of the answers that carried messages.
        MessageBytes = "message_bytes", "Bytes of answers: message";
        /// Connections and streams that never received features.
        InitiateErrors = "initiate_errors", "Failed: initiate";
        /// Logins that failed in SASL.
        AuthenticateErrors = "authenticate_errors", "Failed: authenticate";
        /// Failed resource bindings.
        BindErrors = "bind_errors", "Failed: bind";
        /// Failed RFC 3921 session requests.
        SessionErrors = "session_errors", "Failed: session";
        /// Rosters that were refused or not received.
        RosterErrors = "roster_errors", "Failed: roster";
        /// Presence that bounced with an error.
        PresenceErrors = "presence_errors", "Failed: presence";
        /// Keys derived by the generator for SCRAM (PBKDF2): one per salt.
        KeysDerived = "keys_derived", "Keys derived by the generator";
        /// Those derived before the run, from salts of an earlier one.
        KeysAhead = "keys_ahead", "… before the run";
        /// CPU time of key derivation in the run, in microseconds.
        KeysCpu = "keys_cpu_us", "CPU for keys, µs";
        /// Due actions that were skipped because earlier data of the user still blocked the socket.
        Skipped = "skipped", "Skipped because the socket was full";
    }
}

names! {
    /// Gauges: values at one moment.
    Gauge {
        /// Users between arrival and end.
        Users = "users", "Users";
        /// Open connections.
        Connected = "connected", "Connected";
        /// Users that are logged in.
        Online = "online", "Online";
        /// Online users whose latest answer was acceptable.
        Acceptable = "online_acceptable", "Online with acceptable responses";
        /// Users in rooms, each counted once for each room.
        RoomOccupants = "room_occupants", "Occupants of rooms";
        /// Users whose events of PubSub nodes are counted, each once for each node.
        NodeListeners = "node_listeners", "Subscribers of nodes";
        /// Messages sent by users of this worker and not known to have arrived. Only the sum over all workers is
        /// meaningful.
        UnderWay = "under_way", "Messages in flight";
    }
}
