//! Rooms: Multi-User Chat (XEP-0045 1.35.5) as a service of its own address.
//!
//! One task for each room that is in use (`room_task.rs`) owns a state machine without I/O (`room/mod.rs`): a stanza gives
//! effects, which the task performs before the next stanza. A message to all occupants is one multicast.
//!
//! # Pitfalls
//!
//! Every occupant must see the same order, so nothing of a room is sent from outside its task.

mod affiliation_commands;
mod channel_search;
mod commands;
mod home_node;
mod invitation_registry;
mod options;
mod privileges;
mod remote_rooms;
mod removed_accounts;
mod room;
mod room_directory;
mod room_dispatch;
mod room_import;
mod room_input;
mod room_placement;
mod room_shared;
mod room_storage;
mod room_sweep;
mod room_task;
mod service;
#[cfg(test)]
mod tests;

use feature_api::disco::DiscoIdentity;
use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use feature_api::service::ServiceSpec;
use throng_core::feature_notice::NoticeCtx;
use throng_core::hooks::Phase;
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::service::ServiceCtx;
use xml::Ns;

use self::options::ServiceOptions;
use self::room_sweep::RoomsOfHost;
use self::service::RoomService;

pub use room_import::ImportedRoom;

/// Multi-User Chat.
pub static FEATURE: Feature = Feature {
    name: "muc",
    summary: "Rooms for conversations of many users.",
    specs: &[
        Spec {
            name: "XEP-0045",
            title: "Multi-User Chat",
            version: "1.35.5",
            not_implemented: "section 18.1.1: queries of allowable traffic; status 210 for a nickname that was prepared; new roles for \
                              everybody when a large room becomes moderated",
        },
        Spec {
            name: "XEP-0307",
            title: "Unique Room Names for Multi-User Chat",
            version: "0.1",
            not_implemented: "",
        },
        Spec {
            name: "XEP-0317",
            title: "Hats",
            version: "0.3.1",
            not_implemented: "payloads within hats; languages of titles",
        },
        Spec {
            name: "XEP-0410",
            title: "MUC Self-Ping (Schrödinger's Chat)",
            version: "1.1.0",
            not_implemented: "",
        },
        Spec {
            name: "XEP-0421",
            title: "Occupant identifiers for semi-anonymous MUCs",
            version: "1.0.1",
            not_implemented: "",
        },
        Spec {
            name: "XEP-0424",
            title: "Message Retraction",
            version: "0.4.2",
            not_implemented: "in rooms: tombstones of messages that are not in memory any more",
        },
        Spec {
            name: "XEP-0425",
            title: "Moderated Message Retraction",
            version: "0.3.0",
            not_implemented: "tombstones of messages that are not in memory any more",
        },
        Spec {
            name: "XEP-0433",
            title: "Extended Channel Search",
            version: "0.1.0",
            not_implemented: "descriptions and details of stored rooms that nobody uses on this node; number of their occupants in a \
                              cluster; temporary rooms of other nodes; the list of more than 10 000 rooms",
        },
        Spec {
            name: "XEP-0486",
            title: "MUC Avatars",
            version: "0.1.0",
            not_implemented: "presence of the room itself, which is discouraged",
        },
        Spec { name: "XEP-0500", title: "MUC Slow Mode", version: "0.1.0", not_implemented: "" },
        Spec { name: "XEP-0502", title: "MUC Activity Indicator", version: "0.1.0", not_implemented: "" },
    ],
    disco: &[
        DiscoFeature::Service(Ns::Muc.as_str()),
        DiscoFeature::Service("http://jabber.org/protocol/muc#stable_id"),
        DiscoFeature::Service(Ns::MucUnique.as_str()),
        DiscoFeature::Service(Ns::OccupantId.as_str()),
        DiscoFeature::Service(Ns::Rsm.as_str()),
        DiscoFeature::Service(Ns::VCardTemp.as_str()),
        DiscoFeature::Service(Ns::ChannelSearch.as_str()),
    ],
    service: Some(&ServiceSpec {
        identity: DiscoIdentity { category: "conference", kind: "text", name: "Rooms" },
    }),
    iq: IQ,
    declarations: commands::COMMANDS,
    options: options::OPTIONS,
    build,
    ..Feature::EMPTY
};

const ROOMS: IqKey = IqKey::get(IqTarget::Service, Ns::DiscoItems, "query");
const SEARCH: IqKey = IqKey::get(IqTarget::Service, Ns::ChannelSearch, "search");
const UNIQUE: IqKey = IqKey::get(IqTarget::Service, Ns::MucUnique, "unique");
/// Requests to a room, which its task answers.
const ROOM_REQUESTS: &[IqKey] = &[
    IqKey::get(IqTarget::ServiceItem, Ns::DiscoInfo, "query"),
    IqKey::get(IqTarget::ServiceItem, Ns::DiscoItems, "query"),
    IqKey::get(IqTarget::ServiceItem, Ns::MucAdmin, "query"),
    IqKey::set(IqTarget::ServiceItem, Ns::MucAdmin, "query"),
    IqKey::get(IqTarget::ServiceItem, Ns::MucOwner, "query"),
    IqKey::set(IqTarget::ServiceItem, Ns::MucOwner, "query"),
    IqKey::get(IqTarget::ServiceItem, Ns::Register, "query"),
    IqKey::set(IqTarget::ServiceItem, Ns::Register, "query"),
    IqKey::get(IqTarget::ServiceItem, Ns::VCardTemp, "vCard"),
    IqKey::set(IqTarget::ServiceItem, Ns::VCardTemp, "vCard"),
    IqKey::get(IqTarget::ServiceItem, Ns::Ping, "ping"),
    IqKey::set(IqTarget::ServiceItem, Ns::Commands, "command"),
    IqKey::set(IqTarget::ServiceItem, Ns::Moderate, "moderate"),
];
const IQ: &[IqKey] = &{
    let mut all = [ROOMS; ROOM_REQUESTS.len() + 3];
    all[1] = UNIQUE;
    all[2] = SEARCH;
    let mut at = 0;
    while at < ROOM_REQUESTS.len() {
        all[at + 3] = ROOM_REQUESTS[at];
        at += 1;
    }
    all
};

fn build(builder: &mut FeatureBuilder<'_>) {
    let options = match ServiceOptions::read(builder.options) {
        Ok(options) => options,
        Err((key, problem)) => return builder.refuse_option(key, problem),
    };
    let service = builder.shared_state(|| RoomService::new(builder.domain, options.clone()));
    service.shared.set_options(options);
    for key in ROOM_REQUESTS {
        let service = service.clone();
        builder.iq(*key, move |request: &mut IqRequest<'_>| service.handle_request(request, key.set));
    }
    let of_list = service.clone();
    builder.iq(ROOMS, move |request: &mut IqRequest<'_>| {
        of_list.list_rooms(request).unwrap_or_else(IqFlow::error)
    });
    let of_search = service.clone();
    builder.iq(SEARCH, move |request: &mut IqRequest<'_>| {
        of_search.search(request).unwrap_or_else(IqFlow::error)
    });
    builder.iq(UNIQUE, |_: &mut IqRequest<'_>| {
        IqFlow::result(|w| {
            w.start_ns("unique", Ns::MucUnique).text(&base::id::random_id().to_lowercase()).end();
        })
    });
    let shared = service.shared.clone();
    builder.notice(room_placement::NOTICE, move |ctx: &NoticeCtx<'_>| shared.handle_notice(ctx));
    let shared = service.shared.clone();
    builder.notice(remote_rooms::NOTICE, move |ctx: &NoticeCtx<'_>| shared.handle_room_notice(ctx));
    builder.notice(removed_accounts::NOTICE, removed_accounts::handle_notice);
    builder.provide(RoomsOfHost(service.shared.clone()));
    builder.removed(Phase::Archive, removed_accounts::account_removed);
    commands::build(builder, &service);
    let (of_messages, of_presence, of_iq) = (service.clone(), service.clone(), service);
    builder.service_message(move |ctx: &mut ServiceCtx<'_>| of_messages.handle_stanza(ctx));
    builder.service_presence(move |ctx: &mut ServiceCtx<'_>| of_presence.handle_stanza(ctx));
    builder.service_relayed_iq(move |ctx: &mut ServiceCtx<'_>| of_iq.handle_stanza(ctx));
}
