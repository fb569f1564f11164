//! Values of a host that features provide, or that crates above the engine such as `commands` keep in it, found by their type.

use std::any::{Any, TypeId};

/// A value that at most one feature of a host provides.
pub trait Provided: Any + Send + Sync {
    /// What it is, for the error when two features provide it: a noun with its article.
    const NAME: &'static str;
}

/// Values of a host by type.
#[derive(Default)]
pub struct HostExtensions(Vec<HostExtension>);

struct HostExtension {
    id: TypeId,
    /// The feature that registered it first.
    feature: &'static str,
    value: Box<dyn Any + Send + Sync>,
}

impl HostExtensions {
    /// The value of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.find(TypeId::of::<T>())?.value.downcast_ref()
    }

    fn find(&self, id: TypeId) -> Option<&HostExtension> {
        self.0.iter().find(|one| one.id == id)
    }

    /// The value of this type, its default if there was none.
    pub fn get_or_default<T: Any + Default + Send + Sync>(&mut self, feature: &'static str) -> &mut T {
        let id = TypeId::of::<T>();
        let at = self.0.iter().position(|one| one.id == id).unwrap_or_else(|| {
            self.0.push(HostExtension { id, feature, value: Box::<T>::default() });
            self.0.len() - 1
        });
        #[allow(clippy::expect_used, reason = "the value was stored with the id of its type")]
        self.0[at].value.downcast_mut().expect("a value of this type")
    }

    /// Adds what a feature provides.
    ///
    /// # Errors
    /// The feature that provides it already.
    pub fn provide<T: Provided>(&mut self, feature: &'static str, value: T) -> Result<(), &'static str> {
        let id = TypeId::of::<T>();
        if let Some(first) = self.find(id) {
            return Err(first.feature);
        }
        self.0.push(HostExtension { id, feature, value: Box::new(value) });
        Ok(())
    }
}
