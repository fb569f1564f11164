//! What crates above the engine declare in features and keep in hosts, found by its type. Commands are such a crate.

use std::any::{Any, TypeId};

use crate::feature::Feature;
use crate::host::HostError;

/// A part of a feature's declaration that a crate above the engine defines; see [`Feature::declarations`].
pub trait FeatureDeclaration: Any + Sync {
    /// Called when the feature has registered its handlers; `registered` has those of all features so far.
    ///
    /// # Errors
    /// The feature did not register what this declares.
    fn check(&self, feature: &'static Feature, registered: &HostExtensions) -> Result<(), HostError>;
}

/// Values of a host by type.
#[derive(Default)]
pub struct HostExtensions(Vec<(TypeId, Box<dyn Any + Send + Sync>)>);

impl HostExtensions {
    /// The value of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.iter().find(|(id, _)| *id == TypeId::of::<T>())?.1.downcast_ref()
    }

    /// The value of this type, its default if there was none.
    pub(crate) fn get_or_default<T: Any + Default + Send + Sync>(&mut self) -> &mut T {
        let id = TypeId::of::<T>();
        let at = self.0.iter().position(|(other, _)| *other == id).unwrap_or_else(|| {
            self.0.push((id, Box::<T>::default()));
            self.0.len() - 1
        });
        #[allow(clippy::expect_used, reason = "the value was stored with the id of its type")]
        self.0[at].1.downcast_mut().expect("a value of this type")
    }
}
