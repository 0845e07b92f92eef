// torch::headeronly::HeaderOnlyArrayRef: a view of values that somebody else keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <vector>

namespace torch::headeronly {

template <typename T>
class HeaderOnlyArrayRef {
 public:
  using value_type = T;
  using size_type = size_t;
  using iterator = const T*;
  using const_iterator = const T*;
  using reverse_iterator = std::reverse_iterator<iterator>;

  constexpr HeaderOnlyArrayRef() = default;
  constexpr HeaderOnlyArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr HeaderOnlyArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr HeaderOnlyArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <typename A>
  HeaderOnlyArrayRef(const std::vector<T, A>& values) : data_(values.data()), size_(values.size()) {}
  template <size_t N>
  constexpr HeaderOnlyArrayRef(const T (&values)[N]) : data_(values), size_(N) {}
  constexpr HeaderOnlyArrayRef(const std::initializer_list<T>& values)
      : data_(values.begin()), size_(values.size()) {}

  constexpr iterator begin() const { return data_; }
  constexpr iterator end() const { return data_ + size_; }
  constexpr const_iterator cbegin() const { return data_; }
  constexpr const_iterator cend() const { return data_ + size_; }
  constexpr reverse_iterator rbegin() const { return reverse_iterator(end()); }
  constexpr reverse_iterator rend() const { return reverse_iterator(begin()); }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr const T& front() const { return at(0); }
  constexpr const T& back() const { return at(size_ - 1); }
  constexpr const T& operator[](size_t index) const { return data_[index]; }
  constexpr const T& at(size_t index) const {
    if (index >= size_) throw std::out_of_range("HeaderOnlyArrayRef: index out of range");
    return data_[index];
  }
  constexpr HeaderOnlyArrayRef slice(size_t first, size_t count) const {
    if (first > size_ || count > size_ - first) throw std::out_of_range("HeaderOnlyArrayRef: slice out of range");
    return {data_ + first, count};
  }
  constexpr HeaderOnlyArrayRef slice(size_t first) const { return slice(first, size_ - first); }
  constexpr bool equals(HeaderOnlyArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
bool operator==(HeaderOnlyArrayRef<T> one, HeaderOnlyArrayRef<T> other) {
  return one.equals(other);
}

using IntHeaderOnlyArrayRef = HeaderOnlyArrayRef<int64_t>;

}  // namespace torch::headeronly
