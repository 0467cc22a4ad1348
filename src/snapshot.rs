//! One generation: catalog, policies, projections, index; built whole, published whole.
