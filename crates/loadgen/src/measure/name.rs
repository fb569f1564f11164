//! The names of everything measured, in the order of their numbers.
//!
//! The names are what JSON reports and `compare` use, so they are never reused for something else.
//! Trap: numbers are positions in these lists and travel between workers and controller of one version only.

macro_rules! names {
    ($(#[$outer:meta])* $type:ident { $($(#[$doc:meta])* $item:ident = $name:literal, $title:literal;)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$doc])* $item,)* }

        impl $type {
            /// All, in the order of their numbers.
            pub const ALL: &'static [$type] = &[$($type::$item),*];

            /// The name in JSON.
            pub fn name(self) -> &'static str {
                match self { $($type::$item => $name),* }
            }

            /// The name for a reader.
            pub fn title(self) -> &'static str {
                match self { $($type::$item => $title),* }
            }
        }
    };
}

names! {
    /// What is timed, besides the plan's own transactions.
    Timing {
        /// From due to connected.
        Connect = "connect", "TCP connect";
        /// The TLS handshake.
        Tls = "tls", "TLS handshake";
        /// Over HTTP: from asking for a session to having its first features.
        Initiate = "initiate", "Session initiation";
        /// From sending a stream header to having its features (each of the two or three).
        Features = "features", "Stream header and features";
        /// SASL from `<auth/>` to `<success/>`.
        Authenticate = "authenticate", "Authentication";
        /// Resource binding.
        Bind = "bind", "Resource binding";
        /// RFC 3921 session.
        OpenSession = "session", "Session";
        /// From due to bound, everything in between.
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
        /// Raw requests that wait for an answer, and other IQs.
        Request = "request", "Other request";
        /// XEP-0198 enable.
        SmEnable = "sm_enable", "Stream management";
        /// XEP-0198 resume, from the lost connection to `<resumed/>`.
        SmResume = "sm_resume", "Resumption";
        /// One-way delivery of messages to users who were online.
        Message = "message", "Message delivery";
        /// One-way delivery of messages that waited in the server (delayed delivery).
        MessageStored = "message_stored", "Delivery of stored messages";
        /// There and back between machines without a common clock.
        Echo = "message_echo", "Message and echo between machines";
        /// Delivery of a presence change to a contact.
        Presence = "presence", "Presence delivery";
        /// Length of whole user sessions.
        Session = "user_session", "Length of user sessions";
        /// How long logins waited for the generator's own key derivation (SCRAM); not part of the other times.
        Derive = "key_derivation", "Wait for the generator's own keys";
        /// How late the generator itself sent what was due.
        Lateness = "lateness", "The generator's own lateness";
        /// How long one turn of the generator's loop took: bytes may have waited so long before being read.
        Turn = "loop_turn", "One turn of the generator's loop";
    }
}

names! {
    /// What is counted.
    Counter {
        /// Users that arrived.
        UsersStarted = "users_started", "Users arrived";
        /// Users whose session ended as planned.
        UsersFinished = "users_finished", "Users finished";
        /// TCP connections made.
        Connections = "connections", "Connections";
        /// Connections that failed or timed out.
        ConnectErrors = "connect_errors", "Failed connections";
        /// Logins that succeeded.
        Logins = "logins", "Logins";
        /// Logins that failed.
        LoginErrors = "login_errors", "Failed logins";
        /// Sessions (after login) that ended unplanned: closed by the server, cut or reset.
        SessionsLost = "sessions_lost", "Sessions lost";
        /// Sessions that stream management brought back.
        SessionsResumed = "sessions_resumed", "Sessions resumed";
        /// Numbered messages sent to users of the run.
        MessagesSent = "messages_sent", "Messages sent";
        /// The part of them whose recipient was online when it was sent.
        MessagesToOnline = "messages_to_online", "… to users online";
        /// Messages to other addresses, without account of their arrival.
        MessagesElsewhere = "messages_elsewhere", "Messages to other addresses";
        /// Numbered messages received, each counted once.
        MessagesDelivered = "messages_delivered", "Messages delivered";
        /// The part of them that carries a delay: it waited in the server.
        MessagesDelayed = "messages_delayed", "… that waited in the server";
        /// Received again.
        MessagesDuplicate = "messages_duplicate", "Messages duplicated";
        /// Received after a later one of the same two users.
        MessagesReordered = "messages_reordered", "Messages out of order";
        /// Came back as an error.
        MessagesRefused = "messages_refused", "Messages refused";
        /// Known at the end of the run: sent to users who stayed online, and never arrived.
        MessagesLost = "messages_lost", "Messages lost";
        /// Known at the end: sent to users who were offline, had left or were cut off, and not (yet) fetched.
        MessagesWaiting = "messages_waiting", "Messages left for users not online";
        /// Messages that are not from this run.
        MessagesForeign = "messages_foreign", "Messages of others received";
        /// Presence sent.
        PresenceSent = "presence_sent", "Presence sent";
        /// Presence received.
        PresenceReceived = "presence_received", "Presence received";
        /// IQ requests sent.
        IqSent = "iq_sent", "Requests sent";
        /// IQ answers received, errors included.
        IqAnswered = "iq_answered", "Requests answered";
        /// IQ answers of type error.
        IqErrors = "iq_errors", "Requests refused";
        /// Answers that did not come in time.
        Timeouts = "timeouts", "Answers missing";
        /// Answers and deliveries within the acceptable limit.
        Acceptable = "acceptable", "Acceptable answers";
        /// Answers and deliveries beyond it.
        Unacceptable = "unacceptable", "Answers too late";
        /// Stanzas sent.
        StanzasOut = "stanzas_sent", "Stanzas sent";
        /// Stanzas received.
        StanzasIn = "stanzas_received", "Stanzas received";
        /// Bytes written to sockets, TLS included.
        BytesOut = "bytes_sent", "Bytes sent";
        /// Bytes read from sockets, TLS included.
        BytesIn = "bytes_received", "Bytes received";
        /// Tsung's `match`: applied.
        Matches = "match", "Matches";
        /// Tsung's `match`: did not apply.
        NoMatches = "nomatch", "No match";
        /// Requests of BOSH, those that only wait included.
        HttpRequests = "http_requests", "BOSH requests";
        /// The part of them that carries nothing.
        HttpPolls = "http_polls", "… that only wait";
        /// Sent again, since their connection broke.
        HttpAgain = "http_again", "… sent again";
        /// Bytes of the answers that began sessions: what the table of steps calls length.
        InitiateBytes = "initiate_bytes", "Bytes of answers: initiate";
        /// Bytes of the answers that ended SASL.
        AuthenticateBytes = "authenticate_bytes", "Bytes of answers: authenticate";
        /// Bytes of the answers to resource binding.
        BindBytes = "bind_bytes", "Bytes of answers: bind";
        /// Bytes of the answers to sessions of RFC 3921.
        SessionBytes = "session_bytes", "Bytes of answers: session";
        /// Bytes of rosters.
        RosterBytes = "roster_bytes", "Bytes of answers: roster";
        /// Bytes of what brought a user's own presence back.
        PresenceBytes = "presence_bytes", "Bytes of answers: presence";
        /// Bytes of what brought messages.
        MessageBytes = "message_bytes", "Bytes of answers: message";
        /// Connections and streams that did not come to features.
        InitiateErrors = "initiate_errors", "Failed: initiate";
        /// Logins that SASL ended.
        AuthenticateErrors = "authenticate_errors", "Failed: authenticate";
        /// Resources that were not bound.
        BindErrors = "bind_errors", "Failed: bind";
        /// Sessions of RFC 3921 that were not opened.
        SessionErrors = "session_errors", "Failed: session";
        /// Rosters that were refused or did not come.
        RosterErrors = "roster_errors", "Failed: roster";
        /// Presence that came back as an error.
        PresenceErrors = "presence_errors", "Failed: presence";
        /// Keys that the generator derived for SCRAM (PBKDF2): one for each salt.
        KeysDerived = "keys_derived", "Keys derived by the generator";
        /// The part of them that was derived before the run, from salts of an earlier one.
        KeysAhead = "keys_ahead", "… before the run";
        /// CPU of the derivations in the run, microseconds.
        KeysCpu = "keys_cpu_us", "CPU for keys, µs";
        /// Things due that were not done, since the user's earlier ones still blocked the socket.
        Skipped = "skipped", "Left out, the socket being full";
    }
}

names! {
    /// What has a value at each moment.
    Gauge {
        /// Users between arrival and end.
        Users = "users", "Users";
        /// Open connections.
        Connected = "connected", "Connected";
        /// Users that are logged in.
        Online = "online", "Online";
        /// Users online whose newest answer was acceptable.
        Acceptable = "online_acceptable", "Online with acceptable answers";
        /// Messages sent by this worker's users and not known to have arrived. Meaningful as a sum over all workers.
        UnderWay = "under_way", "Messages under way";
    }
}
