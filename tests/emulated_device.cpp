// A device whose kernels are the CPU's and whose tensors do not go with those of the host: `tests/emulated_device.py`.
//
// Memory is the host's. Operations that torch asks of every device are here; all others go through a fallback, which
// refuses tensors of the host, as a GPU does, and then computes on the CPU.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <set>

using at::IntArrayRef;
using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

namespace {

constexpr auto EMULATED = c10::DeviceType::PrivateUse1;
const c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

struct Memory final : c10::Allocator {
  static void release(void* memory) { c10::free_cpu(memory); }
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = c10::alloc_cpu(bytes);
    return {memory, memory, &release, at::Device(EMULATED, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

Memory memory;
REGISTER_ALLOCATOR(EMULATED, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {  // there is one device, with one stream
  static constexpr c10::DeviceType static_type = EMULATED;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return EMULATED; }
  c10::Device exchangeDevice(c10::Device) const override { return {EMULATED, 0}; }
  c10::Device getDevice() const override { return {EMULATED, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, {EMULATED, 0}); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  at::Device getDeviceFromPtr(void*) const override { return {EMULATED, 0}; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return at::getCPUAllocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto larger = memory.allocate(bytes);
    std::memcpy(larger.get(), storage.data(), std::min(storage.nbytes(), bytes));
    storage.unsafeGetStorageImpl()->set_data_ptr(std::move(larger));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};
Hooks hooks;

// The same memory as a tensor of the host.
Tensor on_cpu(const Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

std::optional<Tensor> on_cpu(const std::optional<Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional<Tensor>(on_cpu(*tensor)) : std::nullopt;
}

Tensor on_device(const Tensor& tensor) { return tensor.defined() ? tensor.to(at::Device(EMULATED, 0)) : tensor; }

std::tuple<Tensor, Tensor, Tensor> on_device(const std::tuple<Tensor, Tensor, Tensor>& three) {
  return {on_device(std::get<0>(three)), on_device(std::get<1>(three)), on_device(std::get<2>(three))};
}

Tensor empty(SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, KEYS, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
                                           KEYS, c10::dtype_or_default(dtype));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar item(const Tensor& tensor) { return on_cpu(tensor).item(); }

Tensor as_strided(const Tensor& tensor, SymIntArrayRef size, SymIntArrayRef stride, std::optional<SymInt> offset) {
  std::optional<int64_t> start;
  if (offset) start = offset->expect_int();
  return at::native::as_strided_tensorimpl(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           start);
}

Tensor view(const Tensor& tensor, SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

Tensor reshape_alias(const Tensor& tensor, SymIntArrayRef size, SymIntArrayRef stride) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

const Tensor& resize(const Tensor& tensor, SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(size), format);
}

Tensor& set_to(Tensor& tensor, const at::Storage& storage, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return tensor;
}

Tensor& set_part(Tensor& tensor, at::Storage storage, SymInt offset, SymIntArrayRef size, SymIntArrayRef stride) {
  auto sides = C10_AS_INTARRAYREF_SLOW(size);
  auto steps = C10_AS_INTARRAYREF_SLOW(stride).vec();
  if (steps.empty() && !sides.empty()) steps = at::detail::defaultStrides(sides);
  return set_to(tensor, storage, offset.expect_int(), sides, steps);
}

Tensor& set_storage(Tensor& tensor, at::Storage storage) {
  return set_to(tensor, storage, 0, {static_cast<int64_t>(storage.nbytes() / tensor.itemsize())}, {1});
}

Tensor& set_tensor(Tensor& tensor, const Tensor& other) {
  return set_to(tensor, other.storage(), other.storage_offset(), other.sizes(), other.strides());
}

Tensor& set_empty(Tensor& tensor) {
  return set_to(tensor, at::Storage(at::Storage::use_byte_size_t(), 0, memory.allocate(0), &memory, true), 0, {0}, {1});
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, SymIntArrayRef stride,
                   SymIntArrayRef padding, SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding,
                   SymInt groups) {
  TORCH_CHECK(!x.device().is_cpu() && !weight.device().is_cpu(), "emulated: a convolution with a tensor of the host");
  return on_device(at::convolution_symint(on_cpu(x), on_cpu(weight), on_cpu(bias), stride, padding, dilation,
                                          transposed, output_padding, groups));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& x, const Tensor& weight, SymIntArrayRef stride, SymIntArrayRef padding,
    SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding, SymInt groups, std::array<bool, 3> mask) {
  std::vector<SymInt> bias{transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  return on_device(at::convolution_backward_symint(on_cpu(gradient), on_cpu(x), on_cpu(weight), SymIntArrayRef(bias),
                                                   stride, padding, dilation, transposed, output_padding, groups,
                                                   mask));
}

// Its schema does not say that it writes the running statistics, so the fallback would lose them.
std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias, const std::optional<Tensor>& mean,
                                              const std::optional<Tensor>& variance, bool training, double momentum,
                                              double eps) {
  return on_device(at::native_batch_norm(on_cpu(x), on_cpu(weight), on_cpu(bias), on_cpu(mean), on_cpu(variance),
                                         training, momentum, eps));
}

void fallback(const c10::OperatorHandle& operation, c10::Stack* stack) {
  const auto& name = operation.schema().operator_name().name;
  // Numbers of rows may lie on the host, and so may scalars.
  static const std::set<std::string> indexing{"aten::index", "aten::index_put_", "aten::_index_put_impl_",
                                              "aten::_unsafe_index", "aten::_unsafe_index_put"};
  auto check = [&](const Tensor& tensor) {
    TORCH_CHECK(indexing.count(name) || !tensor.defined() || !tensor.device().is_cpu() || tensor.dim() == 0,
                "emulated: a tensor ", tensor.sizes(), " of the host in ", name);
  };
  for (const auto& value : torch::jit::last(*stack, operation.schema().arguments().size())) {
    if (value.isTensor()) {
      check(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor()) check(element.toTensor());
    }
  }
  at::native::cpu_fallback(operation, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &item);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage_storage_offset", &set_part);
  library.impl("set_.source_Storage", &set_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("set_", &set_empty);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
  library.impl("native_batch_norm", &batch_norm);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {  // there is no other number format
  library.fallback(torch::CppFunction::makeFallthrough());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("register_hooks", []() { at::RegisterPrivateUse1HooksInterface(&hooks); });
}
