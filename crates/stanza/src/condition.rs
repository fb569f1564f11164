//! Error conditions: RFC 6120, section 4.9.3 (streams) and section 8.3.3 (stanzas).

/// The `type` of a stanza error (RFC 6120, section 8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// Retry after providing credentials.
    Auth,
    /// Do not retry.
    Cancel,
    /// Proceed: the error is only a warning.
    Continue,
    /// Retry after changing the data sent.
    Modify,
    /// Retry after waiting.
    Wait,
}

impl ErrorType {
    /// Value of the `type` attribute.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Cancel => "cancel",
            Self::Continue => "continue",
            Self::Modify => "modify",
            Self::Wait => "wait",
        }
    }
}

/// A stanza error condition (RFC 6120, section 8.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StanzaCondition {
    /// `<bad-request/>`, section 8.3.3.1
    BadRequest,
    /// `<conflict/>`, section 8.3.3.2
    Conflict,
    /// `<feature-not-implemented/>`, section 8.3.3.3
    FeatureNotImplemented,
    /// `<forbidden/>`, section 8.3.3.4
    Forbidden,
    /// `<gone/>`, section 8.3.3.5
    Gone,
    /// `<internal-server-error/>`, section 8.3.3.6
    InternalServerError,
    /// `<item-not-found/>`, section 8.3.3.7
    ItemNotFound,
    /// `<jid-malformed/>`, section 8.3.3.8
    JidMalformed,
    /// `<not-acceptable/>`, section 8.3.3.9
    NotAcceptable,
    /// `<not-allowed/>`, section 8.3.3.10
    NotAllowed,
    /// `<not-authorized/>`, section 8.3.3.11
    NotAuthorized,
    /// `<policy-violation/>`, section 8.3.3.12
    PolicyViolation,
    /// `<recipient-unavailable/>`, section 8.3.3.13
    RecipientUnavailable,
    /// `<redirect/>`, section 8.3.3.14
    Redirect,
    /// `<registration-required/>`, section 8.3.3.15
    RegistrationRequired,
    /// `<remote-server-not-found/>`, section 8.3.3.16
    RemoteServerNotFound,
    /// `<remote-server-timeout/>`, section 8.3.3.17
    RemoteServerTimeout,
    /// `<resource-constraint/>`, section 8.3.3.18
    ResourceConstraint,
    /// `<service-unavailable/>`, section 8.3.3.19
    ServiceUnavailable,
    /// `<subscription-required/>`, section 8.3.3.20
    SubscriptionRequired,
    /// `<undefined-condition/>`, section 8.3.3.21
    UndefinedCondition,
    /// `<unexpected-request/>`, section 8.3.3.22
    UnexpectedRequest,
}

impl StanzaCondition {
    /// Every condition, in the order of RFC 6120.
    pub const ALL: &'static [StanzaCondition] = &[
        Self::BadRequest,
        Self::Conflict,
        Self::FeatureNotImplemented,
        Self::Forbidden,
        Self::Gone,
        Self::InternalServerError,
        Self::ItemNotFound,
        Self::JidMalformed,
        Self::NotAcceptable,
        Self::NotAllowed,
        Self::NotAuthorized,
        Self::PolicyViolation,
        Self::RecipientUnavailable,
        Self::Redirect,
        Self::RegistrationRequired,
        Self::RemoteServerNotFound,
        Self::RemoteServerTimeout,
        Self::ResourceConstraint,
        Self::ServiceUnavailable,
        Self::SubscriptionRequired,
        Self::UndefinedCondition,
        Self::UnexpectedRequest,
    ];

    /// Element name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad-request",
            Self::Conflict => "conflict",
            Self::FeatureNotImplemented => "feature-not-implemented",
            Self::Forbidden => "forbidden",
            Self::Gone => "gone",
            Self::InternalServerError => "internal-server-error",
            Self::ItemNotFound => "item-not-found",
            Self::JidMalformed => "jid-malformed",
            Self::NotAcceptable => "not-acceptable",
            Self::NotAllowed => "not-allowed",
            Self::NotAuthorized => "not-authorized",
            Self::PolicyViolation => "policy-violation",
            Self::RecipientUnavailable => "recipient-unavailable",
            Self::Redirect => "redirect",
            Self::RegistrationRequired => "registration-required",
            Self::RemoteServerNotFound => "remote-server-not-found",
            Self::RemoteServerTimeout => "remote-server-timeout",
            Self::ResourceConstraint => "resource-constraint",
            Self::ServiceUnavailable => "service-unavailable",
            Self::SubscriptionRequired => "subscription-required",
            Self::UndefinedCondition => "undefined-condition",
            Self::UnexpectedRequest => "unexpected-request",
        }
    }

    /// The error type that RFC 6120 associates with the condition.
    pub const fn default_type(self) -> ErrorType {
        match self {
            Self::BadRequest => ErrorType::Modify,
            Self::Conflict => ErrorType::Cancel,
            Self::FeatureNotImplemented => ErrorType::Cancel,
            Self::Forbidden => ErrorType::Auth,
            Self::Gone => ErrorType::Cancel,
            Self::InternalServerError => ErrorType::Cancel,
            Self::ItemNotFound => ErrorType::Cancel,
            Self::JidMalformed => ErrorType::Modify,
            Self::NotAcceptable => ErrorType::Modify,
            Self::NotAllowed => ErrorType::Cancel,
            Self::NotAuthorized => ErrorType::Auth,
            Self::PolicyViolation => ErrorType::Modify,
            Self::RecipientUnavailable => ErrorType::Wait,
            Self::Redirect => ErrorType::Modify,
            Self::RegistrationRequired => ErrorType::Auth,
            Self::RemoteServerNotFound => ErrorType::Cancel,
            Self::RemoteServerTimeout => ErrorType::Wait,
            Self::ResourceConstraint => ErrorType::Wait,
            Self::ServiceUnavailable => ErrorType::Cancel,
            Self::SubscriptionRequired => ErrorType::Auth,
            Self::UndefinedCondition => ErrorType::Cancel,
            Self::UnexpectedRequest => ErrorType::Wait,
        }
    }

    /// Finds a condition by its element name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.as_str() == name)
    }
}

/// A stream error condition (RFC 6120, section 4.9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamCondition {
    /// `<bad-format/>`, section 4.9.3.1
    BadFormat,
    /// `<bad-namespace-prefix/>`, section 4.9.3.2
    BadNamespacePrefix,
    /// `<conflict/>`, section 4.9.3.3
    Conflict,
    /// `<connection-timeout/>`, section 4.9.3.4
    ConnectionTimeout,
    /// `<host-gone/>`, section 4.9.3.5
    HostGone,
    /// `<host-unknown/>`, section 4.9.3.6
    HostUnknown,
    /// `<improper-addressing/>`, section 4.9.3.7
    ImproperAddressing,
    /// `<internal-server-error/>`, section 4.9.3.8
    InternalServerError,
    /// `<invalid-from/>`, section 4.9.3.9
    InvalidFrom,
    /// `<invalid-namespace/>`, section 4.9.3.10
    InvalidNamespace,
    /// `<invalid-xml/>`, section 4.9.3.11
    InvalidXml,
    /// `<not-authorized/>`, section 4.9.3.12
    NotAuthorized,
    /// `<not-well-formed/>`, section 4.9.3.13
    NotWellFormed,
    /// `<policy-violation/>`, section 4.9.3.14
    PolicyViolation,
    /// `<remote-connection-failed/>`, section 4.9.3.15
    RemoteConnectionFailed,
    /// `<reset/>`, section 4.9.3.16
    Reset,
    /// `<resource-constraint/>`, section 4.9.3.17
    ResourceConstraint,
    /// `<restricted-xml/>`, section 4.9.3.18
    RestrictedXml,
    /// `<see-other-host/>`, section 4.9.3.19
    SeeOtherHost,
    /// `<system-shutdown/>`, section 4.9.3.20
    SystemShutdown,
    /// `<undefined-condition/>`, section 4.9.3.21
    UndefinedCondition,
    /// `<unsupported-encoding/>`, section 4.9.3.22
    UnsupportedEncoding,
    /// `<unsupported-feature/>`, section 4.9.3.23
    UnsupportedFeature,
    /// `<unsupported-stanza-type/>`, section 4.9.3.24
    UnsupportedStanzaType,
    /// `<unsupported-version/>`, section 4.9.3.25
    UnsupportedVersion,
}

impl StreamCondition {
    /// Every condition, in the order of RFC 6120.
    pub const ALL: &'static [StreamCondition] = &[
        Self::BadFormat,
        Self::BadNamespacePrefix,
        Self::Conflict,
        Self::ConnectionTimeout,
        Self::HostGone,
        Self::HostUnknown,
        Self::ImproperAddressing,
        Self::InternalServerError,
        Self::InvalidFrom,
        Self::InvalidNamespace,
        Self::InvalidXml,
        Self::NotAuthorized,
        Self::NotWellFormed,
        Self::PolicyViolation,
        Self::RemoteConnectionFailed,
        Self::Reset,
        Self::ResourceConstraint,
        Self::RestrictedXml,
        Self::SeeOtherHost,
        Self::SystemShutdown,
        Self::UndefinedCondition,
        Self::UnsupportedEncoding,
        Self::UnsupportedFeature,
        Self::UnsupportedStanzaType,
        Self::UnsupportedVersion,
    ];

    /// Element name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadFormat => "bad-format",
            Self::BadNamespacePrefix => "bad-namespace-prefix",
            Self::Conflict => "conflict",
            Self::ConnectionTimeout => "connection-timeout",
            Self::HostGone => "host-gone",
            Self::HostUnknown => "host-unknown",
            Self::ImproperAddressing => "improper-addressing",
            Self::InternalServerError => "internal-server-error",
            Self::InvalidFrom => "invalid-from",
            Self::InvalidNamespace => "invalid-namespace",
            Self::InvalidXml => "invalid-xml",
            Self::NotAuthorized => "not-authorized",
            Self::NotWellFormed => "not-well-formed",
            Self::PolicyViolation => "policy-violation",
            Self::RemoteConnectionFailed => "remote-connection-failed",
            Self::Reset => "reset",
            Self::ResourceConstraint => "resource-constraint",
            Self::RestrictedXml => "restricted-xml",
            Self::SeeOtherHost => "see-other-host",
            Self::SystemShutdown => "system-shutdown",
            Self::UndefinedCondition => "undefined-condition",
            Self::UnsupportedEncoding => "unsupported-encoding",
            Self::UnsupportedFeature => "unsupported-feature",
            Self::UnsupportedStanzaType => "unsupported-stanza-type",
            Self::UnsupportedVersion => "unsupported-version",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.2
    //= type=test
    //# The "defined-condition" MUST correspond to one of the stanza error conditions defined under Section 8.3.3.
    #[test]
    fn names_map_to_their_condition() {
        assert_eq!(StanzaCondition::ALL.len(), 22);
        assert_eq!(StreamCondition::ALL.len(), 25);
        for c in StanzaCondition::ALL {
            assert_eq!(StanzaCondition::from_name(c.as_str()), Some(*c));
        }
    }

    #[test]
    fn rfc_6120_section_8_3_3_each_condition_has_the_type_that_is_recommended() {
        let types = [
            "bad-request modify",
            "conflict cancel",
            "feature-not-implemented cancel modify",
            "forbidden auth",
            "gone cancel",
            "internal-server-error cancel",
            "item-not-found cancel",
            "jid-malformed modify",
            "not-acceptable modify",
            "not-allowed cancel",
            "not-authorized auth",
            "policy-violation modify wait",
            "recipient-unavailable wait",
            "redirect modify",
            "registration-required auth",
            "remote-server-not-found cancel",
            "remote-server-timeout wait",
            "resource-constraint wait",
            "service-unavailable cancel",
            "subscription-required auth",
            "undefined-condition auth cancel continue modify wait",
            "unexpected-request wait modify",
        ];
        for row in types {
            let (name, types) = row.split_once(' ').unwrap();
            let condition = StanzaCondition::from_name(name).unwrap();
            assert!(types.split(' ').any(|one| one == condition.default_type().as_str()), "{row}");
        }
    }
}
